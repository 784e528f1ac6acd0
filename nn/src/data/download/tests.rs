//! Downloads from a local HTTPS server that truncates, stalls, corrupts, redirects, is not trusted and is unreachable.

mod server;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::archive::tests::archive;
use super::*;
use server::{Behaviour, Server, serve, start_proxy};

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn remote(server: &Server, path: &str, content: &[u8]) -> RemoteFile {
    RemoteFile {
        address: format!("https://{}/{path}", server.authority),
        name: "file".into(),
        sha256: digest(content),
    }
}

/// An empty folder, removed with everything in it at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("unisono-download-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Folder(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("file")
    }

    /// The file of an interrupted download.
    fn partial(&self) -> PathBuf {
        self.0.join("file.part")
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).expect("it is there").count() == 0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn content() -> Vec<u8> {
    (0..200_000_u32).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// The message of a failed download, which names the address and advises what to do.
fn failure(file: &RemoteFile, folder: &Folder, settings: &HttpSettings) -> String {
    let error = file.fetch(&folder.path(), settings).expect_err("it fails").to_string();
    assert!(error.contains(&file.address) && error.contains("try again"), "{error}");
    assert!(!folder.path().exists(), "only a complete file gets its final name");
    error
}

#[test]
fn a_file_is_downloaded_completely() {
    let (content, folder) = (content(), Folder::new("complete"));
    let server = serve(content.clone());
    remote(&server, "file", &content).fetch(&folder.path(), &server.settings()).expect("it can be fetched");
    assert!(std::fs::read(folder.path()).expect("it is there") == content);
    assert!(!folder.partial().exists());
    assert!(!server.last_request().to_ascii_lowercase().contains("range:"), "{}", server.last_request());
}

#[test]
fn an_interrupted_download_resumes() {
    let (content, folder) = (content(), Folder::new("resumed"));
    let server = serve(content.clone());
    for path in ["file", "moved"] {
        let file = remote(&server, path, &content);
        server.set_behaviour(Behaviour::Truncates);
        let error = failure(&file, &folder, &server.settings());
        assert!(error.contains("100000 of 200000"), "{error}");
        // A second interruption keeps what the first one left.
        let error = failure(&file, &folder, &server.settings());
        assert!(error.contains("150000 of 200000"), "{error}");
        server.set_behaviour(Behaviour::Normal);
        file.fetch(&folder.path(), &server.settings()).expect("it resumes");
        let request = server.last_request().to_ascii_lowercase();
        assert!(request.contains("range: bytes=150000-"), "{request}");
        assert!(std::fs::read(folder.path()).expect("it is there") == content);
        assert!(!folder.partial().exists());
        std::fs::remove_file(folder.path()).expect("it can be removed");
    }
}

#[test]
fn a_stalled_server_ends_the_wait() {
    let (content, folder) = (content(), Folder::new("stalled"));
    let server = serve(content.clone());
    server.set_behaviour(Behaviour::Stalls);
    let settings = HttpSettings { timeout: Duration::from_secs(2), ..server.settings() };
    let file = remote(&server, "file", &content);
    let start = Instant::now();
    let error = failure(&file, &folder, &settings);
    assert!(error.contains("100000 of 200000") && error.contains("no answer within 2s"), "{error}");
    // A server that never even begins the handshake: the system accepts the connection for it.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = format!("https://{}/file", silent.local_addr().expect("it has an address"));
    let error = failure(&RemoteFile { address, ..remote(&server, "", &content) }, &folder, &settings);
    assert!(error.contains("no answer within 2s"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    // What arrived before is not lost.
    server.set_behaviour(Behaviour::Normal);
    file.fetch(&folder.path(), &server.settings()).expect("it resumes");
    assert!(server.last_request().to_ascii_lowercase().contains("range: bytes=100000-"));
}

#[test]
fn a_range_that_the_server_does_not_send_starts_the_download_again() {
    let (content, folder) = (content(), Folder::new("restarted"));
    let server = serve(content.clone());
    for (behaviour, partial) in [
        (Behaviour::IgnoresRange, &content[..5000]),
        (Behaviour::SkipsBytes, &content[..5000]),
        // Longer than the file, as if left by another version.
        (Behaviour::Normal, &[1; 300_000][..]),
        // Complete, but not yet renamed.
        (Behaviour::Normal, &content[..]),
    ] {
        server.set_behaviour(behaviour);
        std::fs::write(folder.partial(), partial).expect("it can be written");
        let file = remote(&server, "file", &content);
        file.fetch(&folder.path(), &server.settings()).expect("it can be fetched");
        assert!(std::fs::read(folder.path()).expect("it is there") == content);
        std::fs::remove_file(folder.path()).expect("it can be removed");
    }
}

#[test]
fn redirects_are_followed_but_not_without_end_and_not_to_plain_http() {
    let (content, folder) = (content(), Folder::new("redirects"));
    let server = serve(content.clone());
    for (path, words) in [("insecure", "is not an https:// address"), ("endless", "too many redirects")] {
        let error = failure(&remote(&server, path, &content), &folder, &server.settings());
        assert!(error.contains(words), "{error}");
    }
    assert!(folder.is_empty());
    remote(&server, "moved", &content).fetch(&folder.path(), &server.settings()).expect("it can be fetched");
    assert!(std::fs::read(folder.path()).expect("it is there") == content);
}

#[test]
fn a_proxy_carries_the_connection() {
    let (content, folder) = (content(), Folder::new("proxy"));
    let server = serve(content.clone());
    let (proxy, requests) = start_proxy();
    let settings = HttpSettings { proxy: Some(proxy), ..server.settings() };
    remote(&server, "file", &content).fetch(&folder.path(), &settings).expect("it can be fetched");
    let requests = requests.lock().expect("no thread panicked");
    assert_eq!(*requests, [format!("CONNECT {} HTTP/1.1", server.authority)]);
}

#[test]
fn an_untrusted_certificate_is_rejected() {
    let (content, folder) = (content(), Folder::new("untrusted"));
    let (server, other) = (serve(content.clone()), serve(content.clone()));
    let public = HttpSettings { proxy: None, ..HttpSettings::default() };
    for settings in [public, other.settings()] {
        let error = failure(&remote(&server, "file", &content), &folder, &settings);
        assert!(error.contains("certificate"), "{error}");
    }
    // The certificate is for an address, not for this name of the same host.
    let address = format!("https://{}/file", server.authority.replace("127.0.0.1", "localhost"));
    let file = RemoteFile { address, ..remote(&server, "", &content) };
    let error = failure(&file, &folder, &server.settings());
    assert!(error.contains("certificate"), "{error}");
    assert!(folder.is_empty() && server.last_request().is_empty());
}

#[test]
fn errors_leave_nothing_behind() {
    let (content, folder) = (content(), Folder::new("errors"));
    let server = serve(content.clone());
    let settings = server.settings();
    server.set_behaviour(Behaviour::Corrupts);
    let error = failure(&remote(&server, "file", &content), &folder, &settings);
    assert!(error.contains("SHA-256") && error.contains(&digest(&content)), "{error}");
    let error = failure(&remote(&server, "none", &content), &folder, &settings);
    assert!(error.contains("404 Not Found"), "{error}");
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("an address");
    for address in [format!("https://{unused}/file"), "https://".into(), "http://127.0.0.1/file".into()] {
        let file = RemoteFile { address, ..remote(&server, "file", &content) };
        let error = failure(&file, &folder, &settings);
        assert!(error.contains("the request failed") && error.contains("put it into"), "{error}");
    }
    assert!(folder.is_empty());
    // A file that the user put there stays, even if its digest is wrong.
    std::fs::write(folder.path(), "mine").expect("it can be written");
    assert!(remote(&server, "file", &content).fetch(&folder.path(), &settings).is_err());
    assert!(folder.path().exists());
}

#[test]
fn an_archive_is_unpacked_once_for_all_ranks() {
    let files = [("data_batch_1.bin", &b"one"[..]), ("readme.html", b"no"), ("test_batch.bin", b"two")];
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&archive(&files)).expect("memory can be written");
    let packed = packer.finish().expect("memory can be written");
    let server = serve(packed.clone());
    let folder = Folder::new("archive");
    let fetch = || {
        let file = RemoteFile { name: "all.tar.gz".into(), ..remote(&server, "file", &packed) };
        let needed = vec!["data_batch_1.bin", "test_batch.bin"];
        RemoteDataSet { files: vec![file], needed }.fetch_with(&folder.0, &server.settings())
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..4).map(|_| scope.spawn(fetch)).collect();
        ranks.into_iter().for_each(|rank| rank.join().expect("no panic").expect("it can be fetched"));
    });
    assert_eq!(std::fs::read(folder.0.join("test_batch.bin")).expect("it is there"), b"two");
    assert!(!folder.0.join("readme.html").exists() && !folder.0.join("all.tar.gz").exists());
    assert_eq!(server.requests.lock().expect("no thread panicked").len(), 1);
}

#[test]
fn digests_are_those_of_the_standard() {
    let folder = Folder::new("digests");
    let million = "a".repeat(1_000_000);
    for (text, digest) in [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (&million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ] {
        std::fs::write(folder.path(), text).expect("it can be written");
        assert_eq!(sha256(&folder.path()).expect("it can be read"), digest);
    }
}

#[test]
fn publications_have_secure_addresses_and_digests() {
    for remote in [mnist(), cifar10()] {
        for file in remote.files {
            assert!(file.address.starts_with("https://") && file.address.ends_with(&file.name));
            assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()));
        }
    }
}
