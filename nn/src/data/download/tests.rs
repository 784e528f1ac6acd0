//! Downloads from a local server that truncates, corrupts, redirects and is unreachable.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::archive::tests::archive;
use super::*;

/// How the server responds to a request.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Normal,
    /// Announces the full length and sends half of it.
    Truncates,
    /// Ignores range requests.
    IgnoresRange,
    /// Sends other bytes.
    Corrupts,
}

/// A server of one file, with the requests that it received.
struct Server {
    address: String,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<Mutex<Vec<String>>>,
}

fn serve(content: Vec<u8>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let behaviour = Arc::new(Mutex::new(Behaviour::Normal));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (how, seen) = (behaviour.clone(), requests.clone());
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client connects");
            let lines = BufReader::new(stream.try_clone().expect("it can be cloned")).lines();
            let lines: Vec<String> =
                lines.map_while(|line| line.ok().filter(|line| !line.is_empty())).collect();
            let behaviour = *how.lock().expect("nobody panicked");
            seen.lock().expect("nobody panicked").push(lines.join("\n"));
            let range = lines.iter().find_map(|line| line.strip_prefix("Range: bytes=")?.strip_suffix('-'));
            let from: usize = range.and_then(|range| range.parse().ok()).unwrap_or(0);
            let head = if lines[0].starts_with("GET /moved ") {
                format!("302 Found\r\nLocation: http://127.0.0.1:{port}/file")
            } else if lines[0].starts_with("GET /secret ") {
                "301 Moved\r\nLocation: https://127.0.0.1/file".into()
            } else if !lines[0].starts_with("GET /file ") {
                "404 Not Found".into()
            } else if from > content.len() {
                "416 Range Not Satisfiable".into()
            } else if from > 0 && behaviour != Behaviour::IgnoresRange {
                let length = content.len() - from;
                format!(
                    "206 Partial\r\nContent-Length: {length}\r\nContent-Range: bytes {from}-{}/*",
                    length - 1
                )
            } else {
                format!("200 OK\r\nContent-Length: {}", content.len())
            };
            let body = match (head.split(' ').next(), behaviour) {
                (Some("200"), Behaviour::Truncates) => content[..content.len() / 2].to_vec(),
                (Some("200"), Behaviour::Corrupts) => vec![0; content.len()],
                (Some("200"), _) => content.clone(),
                (Some("206"), _) => content[from..].to_vec(),
                _ => Vec::new(),
            };
            let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes());
            let _ = stream.write_all(&body);
        }
    });
    Server { address: format!("http://127.0.0.1:{port}/"), behaviour, requests }
}

impl Server {
    fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("nobody panicked") = behaviour;
    }

    fn last_request(&self) -> String {
        self.requests.lock().expect("nobody panicked").last().cloned().unwrap_or_default()
    }

    fn file(&self, path: &str, content: &[u8]) -> RemoteFile {
        RemoteFile {
            address: format!("{}{path}", self.address),
            name: "file".into(),
            sha256: sha256(content),
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("unisono-download-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

fn content() -> Vec<u8> {
    (0..200_000_u32).map(|index| (index * 7 + index / 251) as u8).collect()
}

#[test]
fn a_download_that_broke_off_goes_on() {
    let (content, folder) = (content(), folder("resumed"));
    let server = serve(content.clone());
    let (path, file) = (folder.join("file"), server.file("file", &content));
    server.set_behaviour(Behaviour::Truncates);
    let error = file.fetch(&path).expect_err("half is missing").to_string();
    assert!(error.contains("100000 of 200000"), "{error}");
    assert!(!path.exists(), "what has its name is whole");
    server.set_behaviour(Behaviour::Normal);
    file.fetch(&path).expect("it goes on");
    assert!(server.last_request().contains("Range: bytes=100000-"), "{}", server.last_request());
    assert!(std::fs::read(&path).expect("it is there") == content);
    assert!(!folder.join("file.part").exists());
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn a_server_without_ranges_starts_again_and_redirections_are_followed() {
    let (content, folder) = (content(), folder("whole"));
    let server = serve(content.clone());
    for (path, behaviour, part) in [
        ("file", Behaviour::IgnoresRange, Some(&content[..5000])),
        ("moved", Behaviour::Normal, None),
        // Longer than the file, as if left by another version.
        ("file", Behaviour::Normal, Some(&[1; 300_000][..])),
    ] {
        server.set_behaviour(behaviour);
        let target = folder.join("file");
        let _ = std::fs::remove_file(&target);
        if let Some(part) = part {
            std::fs::write(folder.join("file.part"), part).expect("it can be written");
        }
        server.file(path, &content).fetch(&target).expect("it can be fetched");
        assert!(std::fs::read(&target).expect("it is there") == content);
    }
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn what_is_wrong_is_refused_and_leaves_nothing() {
    let (content, folder) = (content(), folder("wrong"));
    let server = serve(content.clone());
    server.set_behaviour(Behaviour::Corrupts);
    let path = folder.join("file");
    let error = server.file("file", &content).fetch(&path).expect_err("other bytes").to_string();
    assert!(error.contains("SHA-256"), "{error}");
    for (address, words) in [("none", "404"), ("secret", "not a plain http://")] {
        let error = server.file(address, &content).fetch(&path).expect_err(address).to_string();
        assert!(error.contains(words), "{error}");
    }
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("an address");
    let remote = RemoteFile { address: format!("http://{unused}/file"), ..server.file("file", &content) };
    let error = remote.fetch(&path).expect_err("nobody listens").to_string();
    assert!(error.contains("cannot reach") && error.contains("put it into"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0);
    // A file that the user put there stays, even if its digest is wrong.
    std::fs::write(&path, "mine").expect("it can be written");
    assert!(server.file("file", &content).fetch(&path).is_err());
    assert!(path.exists());
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn an_archive_is_unpacked_once_for_all_ranks() {
    let files = [("data_batch_1.bin", &b"one"[..]), ("readme.html", b"no"), ("test_batch.bin", b"two")];
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&archive(&files)).expect("memory can be written");
    let packed = packer.finish().expect("memory can be written");
    let server = serve(packed.clone());
    let folder = folder("archive");
    let fetch = || {
        let file = RemoteFile { name: "all.tar.gz".into(), ..server.file("file", &packed) };
        let needed = vec!["data_batch_1.bin", "test_batch.bin"];
        RemoteDataSet { files: vec![file], needed }.fetch(&folder)
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..4).map(|_| scope.spawn(fetch)).collect();
        ranks.into_iter().for_each(|rank| rank.join().expect("no panic").expect("it can be fetched"));
    });
    assert_eq!(std::fs::read(folder.join("test_batch.bin")).expect("it is there"), b"two");
    assert!(!folder.join("readme.html").exists() && !folder.join("all.tar.gz").exists());
    assert_eq!(server.requests.lock().expect("nobody panicked").len(), 1);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
}

#[test]
fn publications_have_plain_addresses_and_digests() {
    for remote in [mnist(), cifar10()] {
        for file in remote.files {
            assert!(file.address.starts_with("http://") && file.address.ends_with(&file.name));
            assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|digit| digit.is_ascii_hexdigit()));
        }
    }
}
