//! A temporary folder for a test, removed on drop.

use std::path::PathBuf;

pub struct Folder(pub PathBuf);

impl Folder {
    /// Creates an empty folder; no other test of the same program may use the name.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("unisono-nn-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
