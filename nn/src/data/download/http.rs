//! A minimal HTTP client: fetches a file, or the remainder of one.
//!
//! It speaks HTTP/1.0 without TLS: public files with a published digest do not need encryption, and plain HTTP needs no
//! further library. A proxy in `http_proxy` is respected.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The timeout for connecting, and for each read and write.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// The length limit of a header line, in bytes.
const LONGEST_LINE: u64 = 16 << 10;

/// The response of a server.
pub(super) struct HttpResponse {
    /// The offset of the body in the file: 0, or the requested offset.
    pub(super) from: u64,
    /// The length of the body in bytes, if the server reports it.
    pub(super) length: Option<u64>,
    pub(super) body: Box<dyn Read>,
}

struct Address<'a> {
    host: &'a str,
    port: u16,
    path: &'a str,
}

fn parse(address: &str) -> Result<Address<'_>, String> {
    let rest = address.strip_prefix("http://").ok_or_else(|| {
        format!("{address} is not a plain http:// address, the only kind that this program can fetch")
    })?;
    let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| format!("`{port}` is no port"))?),
        None => (place, 80),
    };
    Ok(Address { host, port, path: if path.is_empty() { "/" } else { path } })
}

fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("cannot reach {host}:{port}: {error}");
    let mut last = format!("{host} has no address");
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

/// Requests a file from a byte offset on, and follows redirects.
pub(super) fn get(address: &str, from: u64) -> Result<HttpResponse, String> {
    let mut address = address.to_string();
    for _ in 0..=MAX_REDIRECTS {
        match send_request(&address, from, std::env::var("http_proxy").ok().as_deref())? {
            Reply::Body(response) => return Ok(response),
            Reply::Redirect(next) => address = next,
        }
    }
    Err(format!("{address} leads from one address to the next"))
}

enum Reply {
    Body(HttpResponse),
    Redirect(String),
}

fn send_request(address: &str, from: u64, proxy: Option<&str>) -> Result<Reply, String> {
    let Address { host, port, path } = parse(address)?;
    let is_loopback = ["localhost", "127.0.0.1"].contains(&host);
    let (mut stream, target) = match proxy.filter(|proxy| !proxy.is_empty() && !is_loopback) {
        Some(proxy) => {
            let through = parse(proxy)?;
            (connect(through.host, through.port)?, address)
        }
        None => (connect(host, port)?, path),
    };
    let range = if from > 0 { format!("Range: bytes={from}-\r\n") } else { String::new() };
    let request = format!(
        "GET {target} HTTP/1.0\r\nHost: {host}:{port}\r\nUser-Agent: unisono\r\nAccept: */*\r\n{range}\r\n"
    );
    let failed = |error: std::io::Error| format!("{host} does not answer: {error}");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut reader = BufReader::new(stream);
    let mut line = || -> Result<String, String> {
        let mut line = String::new();
        reader.by_ref().take(LONGEST_LINE).read_line(&mut line).map_err(failed)?;
        Ok(line.trim_end().to_string())
    };
    let status = line()?;
    let code: u16 = status.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let (mut length, mut location, mut begins) = (None, None, None);
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok(),
            "location" => location = Some(value.to_string()),
            "content-range" => {
                let first = value.strip_prefix("bytes ").and_then(|rest| rest.split('-').next());
                begins = first.and_then(|first| first.parse().ok());
            }
            "transfer-encoding" => {
                return Err(format!("{host} answers in pieces ({value}), which was not asked for"));
            }
            _ => {}
        }
    }
    match (code, location) {
        (200, _) => Ok(Reply::Body(HttpResponse { from: 0, length, body: Box::new(reader) })),
        (206, _) => {
            let from = begins.ok_or_else(|| format!("{host} does not say which part it sends"))?;
            Ok(Reply::Body(HttpResponse { from, length, body: Box::new(reader) }))
        }
        (301 | 302 | 303 | 307 | 308, Some(location)) => Ok(Reply::Redirect(location)),
        _ => Err(format!("{host} answers `{status}` for {path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (address, expected) in [
            ("http://a.org/b/c", Some(("a.org", 80, "/b/c"))),
            ("http://a.org:8080", Some(("a.org", 8080, "/"))),
            ("https://a.org/b", None),
            ("http://a.org:x/", None),
        ] {
            let found = parse(address).ok().map(|found| (found.host, found.port, found.path));
            assert_eq!(found, expected, "{address}");
        }
    }
}
