//! Reads the files of a tar archive.

/// A tar archive consists of blocks of this size: a header block, then the blocks of the file.
const BLOCK: usize = 512;

/// The regular files of an archive by base name, or a description of what is wrong with it.
pub(in crate::data) fn files(archive: &[u8]) -> Result<Vec<(String, &[u8])>, String> {
    let mut found = Vec::new();
    let mut rest = archive;
    while rest.len() >= BLOCK && rest[..BLOCK].iter().any(|byte| *byte != 0) {
        let (header, after) = rest.split_at(BLOCK);
        let name: Vec<u8> = header[..100].iter().copied().take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        let size = String::from_utf8_lossy(&header[124..136]).into_owned();
        let size = usize::from_str_radix(size.trim_matches(['\0', ' ']), 8)
            .map_err(|_| format!("`{name}` has no size"))?;
        let content = after.get(..size).ok_or_else(|| format!("`{name}` ends too early"))?;
        // Type `0` is a regular file; the first versions of the format wrote a zero byte instead.
        if matches!(header[156], b'0' | 0) {
            let last = name.rsplit('/').next().unwrap_or_default().to_string();
            found.push((last, content));
        }
        rest = after.get(size.div_ceil(BLOCK) * BLOCK..).unwrap_or_default();
    }
    Ok(found)
}

#[cfg(test)]
pub(in crate::data) mod tests {
    use super::*;

    /// An archive of these files, inside a folder.
    pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = Vec::new();
        let mut entry = |name: &str, kind: u8, content: &[u8]| {
            let mut header = [0_u8; BLOCK];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
            header[156] = kind;
            archive.extend_from_slice(&header);
            archive.extend_from_slice(content);
            archive.resize(archive.len().next_multiple_of(BLOCK), 0);
        };
        entry("folder/", b'5', b"");
        files.iter().for_each(|(name, content)| entry(&format!("folder/{name}"), b'0', content));
        archive.extend_from_slice(&[0; 2 * BLOCK]);
        archive
    }

    #[test]
    fn files_come_out_as_they_went_in() {
        let long = vec![7_u8; 1000];
        let packed = archive(&[("a.bin", b"abc"), ("b.bin", &long), ("empty", b"")]);
        let found = files(&packed).expect("it is an archive");
        assert_eq!(found, [("a.bin".into(), &b"abc"[..]), ("b.bin".into(), &long), ("empty".into(), b"")]);
        assert!(files(&packed[..2100]).is_err());
    }
}
