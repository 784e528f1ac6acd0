//! Downloads of full data sets from their publishers: resumable, verified, and visible only once complete.

pub(super) mod archive;
mod http;
mod tls;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use unisono::{Error, Result};

use http::HttpSettings;

/// A file at its publisher.
struct RemoteFile {
    address: String,
    /// The file's name at the publisher.
    name: String,
    sha256: String,
}

/// A data set at its publisher.
pub(super) struct RemoteDataSet {
    files: Vec<RemoteFile>,
    /// The files that loading needs, possibly compressed in the folder.
    needed: Vec<&'static str>,
}

/// The size of reads, in bytes.
const BLOCK: usize = 1 << 16;

/// PyTorch's mirror; the digests are those of the compressed files.
const MNIST: &str = "https://ossci-datasets.s3.amazonaws.com/mnist/";
const MNIST_FILES: [(&str, &str); 4] = [
    ("train-images-idx3-ubyte", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    ("train-labels-idx1-ubyte", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ("t10k-images-idx3-ubyte", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    ("t10k-labels-idx1-ubyte", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
];

/// The page of the data set's author.
const CIFAR10: &str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
const CIFAR10_SHA256: &str = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
const CIFAR10_FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

pub(super) fn mnist() -> RemoteDataSet {
    let file = |(name, sha256): &(&str, &str)| RemoteFile {
        address: format!("{MNIST}{name}.gz"),
        name: format!("{name}.gz"),
        sha256: sha256.to_string(),
    };
    RemoteDataSet {
        files: MNIST_FILES.iter().map(file).collect(),
        needed: MNIST_FILES.iter().map(|(name, _)| *name).collect(),
    }
}

pub(super) fn cifar10() -> RemoteDataSet {
    let archive = RemoteFile {
        address: CIFAR10.into(),
        name: "cifar-10-binary.tar.gz".into(),
        sha256: CIFAR10_SHA256.into(),
    };
    RemoteDataSet { files: vec![archive], needed: CIFAR10_FILES.to_vec() }
}

/// The default download folder: a subfolder of the user's cache.
pub(super) fn cache(name: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    cache.unwrap_or_else(std::env::temp_dir).join("unisono").join(name)
}

fn is_present(folder: &Path, name: &str) -> bool {
    folder.join(name).is_file() || folder.join(format!("{name}.gz")).is_file()
}

impl RemoteDataSet {
    /// Fetches the files that are missing from a folder.
    pub(super) fn fetch(&self, folder: &Path) -> Result<()> {
        self.fetch_with(folder, &HttpSettings::default())
    }

    fn fetch_with(&self, folder: &Path, settings: &HttpSettings) -> Result<()> {
        if self.needed.iter().all(|name| is_present(folder, name)) {
            return Ok(());
        }
        let failed =
            |error| Error::io("download data", folder.display().to_string(), error, "give another `folder`");
        std::fs::create_dir_all(folder).map_err(failed)?;
        // All ranks of a host arrive here together: one downloads, and the others find the files.
        let lock = File::create(folder.join(".download")).map_err(failed)?;
        lock.lock().map_err(failed)?;
        if self.needed.iter().all(|name| is_present(folder, name)) {
            return Ok(());
        }
        for file in &self.files {
            let single = file.name.strip_suffix(".gz").filter(|name| self.needed.contains(name));
            if single.is_some_and(|name| is_present(folder, name)) {
                continue;
            }
            let path = folder.join(&file.name);
            file.fetch(&path, settings)?;
            if single.is_none() {
                self.unpack(&path, folder)?;
            }
        }
        Ok(())
    }

    /// Extracts the needed files from an archive, and then removes the archive.
    fn unpack(&self, path: &Path, folder: &Path) -> Result<()> {
        let bytes = super::file::open(path)?.all()?;
        let files =
            archive::files(&bytes).map_err(|wrong| super::file::damaged(path, "a tar archive", wrong))?;
        for name in &self.needed {
            let Some((_, content)) = files.iter().find(|(found, _)| found == name) else {
                return Err(super::file::damaged(path, format!("an archive with {name}"), "one without"));
            };
            let partial = folder.join(format!("{name}.part"));
            std::fs::write(&partial, content)
                .and_then(|()| std::fs::rename(&partial, folder.join(name)))
                .map_err(|error| Error::io("unpack", partial.display().to_string(), error, "make room"))?;
        }
        // An archive that cannot be removed does no harm.
        let _ = std::fs::remove_file(path);
        Ok(())
    }
}

impl RemoteFile {
    /// Downloads to a temporary name, resumes an interrupted download, and renames the file once its digest is verified.
    fn fetch(&self, path: &Path, settings: &HttpSettings) -> Result<()> {
        let partial = PathBuf::from(format!("{}.part", path.display()));
        let written = |error| Error::io("download", partial.display().to_string(), error, "make room");
        // The user may have put the file there by hand.
        if path.is_file() {
            return self.check(path);
        }
        eprintln!("unisono: downloading {} to {}", self.address, path.display());
        self.transfer(&partial, settings)?;
        if let Err(error) = self.check(&partial) {
            // Wrong contents would fail again if the next attempt resumed from them.
            let _ = std::fs::remove_file(&partial);
            return Err(error);
        }
        std::fs::rename(&partial, path).map_err(written)
    }

    /// Verifies that a file is the published one.
    fn check(&self, path: &Path) -> Result<()> {
        let digest = sha256(path)
            .map_err(|error| Error::io("read", path.display().to_string(), error, "give another `folder`"))?;
        if digest == self.sha256 {
            return Ok(());
        }
        Err(Error::usage(
            format!("download {} to {}", self.address, path.display()),
            format!("a file with the SHA-256 digest {}", self.sha256),
            digest,
            "try again, or get the files another way and give their `folder`",
        ))
    }

    /// Appends the missing bytes to the partial file.
    fn transfer(&self, partial: &Path, settings: &HttpSettings) -> Result<()> {
        let offline = |why: String| {
            let advice = format!(
                "try again, or get {} on a machine that reaches it and put it into {}",
                self.address,
                partial.parent().unwrap_or(partial).display()
            );
            Error::io("download data", self.address.clone(), std::io::Error::other(why), &advice)
        };
        let written = |error| Error::io("download", partial.display().to_string(), error, "make room");
        let have = std::fs::metadata(partial).map_or(0, |metadata| metadata.len());
        let mut response = http::get(&self.address, have, settings).map_err(offline)?;
        let mut file = OpenOptions::new().create(true).append(true).open(partial).map_err(written)?;
        file.set_len(response.from).map_err(written)?;
        let total = response.length.map(|length| format!(" of {}", response.from.saturating_add(length)));
        let mut position = response.from;
        let mut block = vec![0; BLOCK];
        loop {
            let count = response.read(&mut block).map_err(|why| {
                let total = total.as_deref().unwrap_or_default();
                offline(format!(
                    "interrupted after {position}{total} bytes: {why}; the next attempt resumes there"
                ))
            })?;
            if count == 0 {
                return Ok(());
            }
            file.write_all(&block[..count]).map_err(written)?;
            position += count as u64;
        }
    }
}

/// The digest of a file, in hexadecimal.
fn sha256(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher, mut block) = (File::open(path)?, Sha256::new(), vec![0; BLOCK]);
    loop {
        match file.read(&mut block) {
            Ok(0) => break,
            Ok(count) => hasher.update(&block[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

// The test server needs the same cryptography as the client.
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests;
