//! An HTTPS server of one file for tests, with a certification authority of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graviola::hashing::Sha256;
use graviola::signing::ecdsa::{P256, SigningKey};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyIdMethod, SerialNumber};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use ureq::tls::{Certificate, RootCerts};

use super::super::http::HttpSettings;

/// How the server responds to a request.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Behaviour {
    Normal,
    /// Announces the full length, sends half of it, and closes the connection.
    Truncates,
    /// Announces the full length, sends half of it, and keeps the connection open.
    Stalls,
    /// Ignores range requests.
    IgnoresRange,
    /// Sends a range that begins later than the requested one.
    SkipsBytes,
    /// Sends other bytes.
    Corrupts,
}

/// A server of one file, with the requests that it received.
pub(super) struct Server {
    /// Where it listens: a host and a port.
    pub(super) authority: String,
    pub(super) behaviour: Arc<Mutex<Behaviour>>,
    pub(super) requests: Arc<Mutex<Vec<String>>>,
    roots: RootCerts,
}

/// Starts a server of a file on a free port. Its threads end with the test process.
pub(super) fn serve(content: Vec<u8>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let authority = listener.local_addr().expect("it has an address").to_string();
    let behaviour = Arc::new(Mutex::new(Behaviour::Normal));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (tls, root) = certify();
    let server = Server {
        authority: authority.clone(),
        behaviour: behaviour.clone(),
        requests: requests.clone(),
        roots: RootCerts::new_with_certs(&[Certificate::from_der(&root).to_owned()]),
    };
    let content = Arc::new(content);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a client connects");
            let (tls, content, authority) = (tls.clone(), content.clone(), authority.clone());
            let (behaviour, requests) = (behaviour.clone(), requests.clone());
            std::thread::spawn(move || {
                let connection = ServerConnection::new(tls).expect("the configuration is valid");
                let mut stream = BufReader::new(StreamOwned::new(connection, stream));
                // A client that does not trust the certificate sends no request.
                let Some(request) = read_request(&mut stream) else { return };
                requests.lock().expect("no thread panicked").push(request.join("\n"));
                let behaviour = *behaviour.lock().expect("no thread panicked");
                // A client that disconnects early is part of some tests.
                let _ = respond(stream.get_mut(), &request, behaviour, &content, &authority);
            });
        }
    });
    server
}

impl Server {
    /// Settings of a client that trusts only this server's certification authority.
    pub(super) fn settings(&self) -> HttpSettings {
        HttpSettings { roots: self.roots.clone(), proxy: None, timeout: Duration::from_secs(30) }
    }

    pub(super) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().expect("no thread panicked") = behaviour;
    }

    pub(super) fn last_request(&self) -> String {
        self.requests.lock().expect("no thread panicked").last().cloned().unwrap_or_default()
    }
}

/// The lines of a request's head.
fn read_request(stream: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => return (!lines.is_empty()).then_some(lines),
            line => lines.push(line.to_string()),
        }
    }
}

fn respond(
    stream: &mut StreamOwned<ServerConnection, TcpStream>,
    request: &[String],
    behaviour: Behaviour,
    content: &[u8],
    authority: &str,
) -> std::io::Result<()> {
    let range = request.iter().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok()
    });
    let from: usize = range.filter(|_| behaviour != Behaviour::IgnoresRange).unwrap_or(0);
    let path = request[0].split(' ').nth(1).unwrap_or_default();
    let (head, body) = match path {
        "/moved" => {
            (format!("302 Found\r\nLocation: https://{authority}/file\r\nContent-Length: 0"), &[][..])
        }
        "/insecure" => {
            (format!("301 Moved\r\nLocation: http://{authority}/file\r\nContent-Length: 0"), &[][..])
        }
        "/endless" => ("302 Found\r\nLocation: /endless\r\nContent-Length: 0".into(), &[][..]),
        "/file" if from >= content.len() => {
            ("416 Range Not Satisfiable\r\nContent-Length: 0".into(), &[][..])
        }
        "/file" if from > 0 => {
            let first = if behaviour == Behaviour::SkipsBytes { from + 1 } else { from };
            let range = format!("{first}-{}/{}", content.len() - 1, content.len());
            let length = content.len() - first;
            (
                format!("206 Partial Content\r\nContent-Length: {length}\r\nContent-Range: bytes {range}"),
                &content[first..],
            )
        }
        "/file" => (format!("200 OK\r\nContent-Length: {}", content.len()), content),
        _ => ("404 Not Found\r\nContent-Length: 0".into(), &[][..]),
    };
    stream.write_all(format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").as_bytes())?;
    match behaviour {
        Behaviour::Truncates => return stream.write_all(&body[..body.len() / 2]),
        Behaviour::Stalls => {
            stream.write_all(&body[..body.len() / 2])?;
            // Returns when the client disconnects.
            return stream.read(&mut [0]).map(|_| ());
        }
        Behaviour::Corrupts => stream.write_all(&vec![0; body.len()])?,
        _ => stream.write_all(body)?,
    }
    stream.conn.send_close_notify();
    stream.flush()
}

/// A server's configuration with a certificate for this host, and the certificate of the authority that signed it.
fn certify() -> (Arc<ServerConfig>, CertificateDer<'static>) {
    let parameters = |names: &[&str], title: &str, number: u64| {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut parameters = CertificateParams::new(names).expect("the names are valid");
        parameters.distinguished_name.push(DnType::CommonName, title);
        parameters.serial_number = Some(SerialNumber::from(number));
        parameters.key_identifier_method = KeyIdMethod::PreSpecified(vec![number as u8]);
        parameters
    };
    let (root_key, key) = (Key::generate(), Key::generate());
    let mut root = parameters(&[], "authority", 1);
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).expect("it can be signed");
    let issuer = Issuer::from_params(&root, &root_key);
    let certificate =
        parameters(&["127.0.0.1"], "server", 2).signed_by(&key, &issuer).expect("it can be signed");
    let mut encoded = [0; 256];
    let private = key.key.to_pkcs8_der(&mut encoded).expect("it fits").to_vec();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(private.into()))
        .expect("the key belongs to the certificate");
    (Arc::new(config), root_certificate.der().clone())
}

/// A key that signs certificates.
struct Key {
    key: SigningKey<P256>,
    public: Vec<u8>,
}

impl Key {
    fn generate() -> Key {
        let key = SigningKey::<P256>::generate().expect("the system has random numbers");
        let mut encoded = [0; 128];
        let encoded = key.to_spki_der(&mut encoded).expect("it fits");
        // An uncompressed point, 65 bytes long, ends the encoding.
        let public = encoded[encoded.len() - 65..].to_vec();
        Key { key, public }
    }
}

impl rcgen::PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let mut signature = [0; 128];
        let signature = self.key.sign_asn1::<Sha256>(&[message], &mut signature);
        signature.map(|signature| signature.to_vec()).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// Starts an HTTP proxy that tunnels connections, and counts them.
pub(super) fn start_proxy() -> (ureq::Proxy, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a client connects");
            let mut reader = BufReader::new(client.try_clone().expect("it can be cloned"));
            let request = read_request(&mut reader).expect("a request arrives");
            seen.lock().expect("no thread panicked").push(request[0].clone());
            let target = request[0].split(' ').nth(1).expect("it names a host");
            let mut server = TcpStream::connect(target).expect("the server listens");
            client.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").expect("the client waits");
            let mut upstream = server.try_clone().expect("it can be cloned");
            std::thread::spawn(move || std::io::copy(&mut reader, &mut upstream));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (ureq::Proxy::new(&format!("http://{address}")).expect("it is a valid address"), requests)
}
