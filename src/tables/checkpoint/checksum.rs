//! Checksums as text that includes their kind: `crc32:` and eight hexadecimal digits.

/// Running checksum of a byte stream.
pub(super) struct Checksum(crc32fast::Hasher);

impl Checksum {
    pub(super) fn new() -> Checksum {
        Checksum(crc32fast::Hasher::new())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn text(self) -> String {
        format!("crc32:{:08x}", self.0.finalize())
    }
}

pub(super) fn of(bytes: &[u8]) -> String {
    let mut checksum = Checksum::new();
    checksum.update(bytes);
    checksum.text()
}

#[test]
fn it_is_the_checksum_that_others_compute() {
    assert_eq!(of(b"123456789"), "crc32:cbf43926");
}
