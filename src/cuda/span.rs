//! Bytes of device memory that a caller lends for a call.

use crate::error::{Error, Result};

/// Some bytes on a device: their location, not their ownership.
///
/// ```
/// use unisono::cuda::Span;
/// // SAFETY: no bytes at all are always there.
/// let nothing = unsafe { Span::lent(0, 0, 0) };
/// assert_eq!((nothing.device(), nothing.bytes()), (0, 0));
/// assert!(nothing.part(0, 1).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    device: u32,
    address: u64,
    bytes: usize,
}

impl Span {
    /// Bytes that begin at an address of a device (its ordinal in this process).
    ///
    /// # Safety
    /// They are that device's memory in its primary context. They stay valid, and nothing else uses them, until the calls
    /// that take the span have returned; they are ready when such a call begins, or ordered before our stream's work.
    pub const unsafe fn lent(device: u32, address: u64, bytes: usize) -> Span {
        Span { device, address, bytes }
    }

    /// No bytes of a device.
    pub const fn empty(device: u32) -> Span {
        Span { device, address: 0, bytes: 0 }
    }

    /// The device's ordinal in this process.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// The address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The `bytes` bytes from `start` on.
    pub fn part(&self, start: usize, bytes: usize) -> Result<Span> {
        match start.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            true => Ok(Span { device: self.device, address: self.address + start as u64, bytes }),
            false => Err(Error::usage(
                "CUDA memory",
                format!("a part inside {} bytes", self.bytes),
                format!("{bytes} bytes from {start} on"),
                "pass a smaller part",
            )),
        }
    }

    /// Whether the two spans overlap.
    pub fn overlaps(&self, other: &Span) -> bool {
        let end = |span: &Span| span.address + span.bytes as u64;
        self.device == other.device && self.address < end(other) && other.address < end(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        // SAFETY: the address is never dereferenced.
        let span = unsafe { Span::lent(1, 4096, 100) };
        let part = span.part(10, 90).unwrap();
        assert_eq!((part.device(), part.address(), part.bytes()), (1, 4106, 90));
        assert!(span.part(11, 90).is_err() && span.part(usize::MAX, 2).is_err());
        assert!(span.overlaps(&part) && !span.part(0, 10).unwrap().overlaps(&part));
    }
}
