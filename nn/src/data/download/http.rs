//! The HTTPS client of downloads: requests a file, or the remainder of one.

use std::io::Read;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::tls::RootCerts;
use ureq::{Agent, Body, BodyReader, Proxy, ResponseExt, Timeout};

use super::tls;

const TIMEOUT: Duration = Duration::from_secs(30);

/// How the client connects.
pub(super) struct HttpSettings {
    /// The certification authorities that are trusted.
    pub(super) roots: RootCerts,
    pub(super) proxy: Option<Proxy>,
    /// The deadline of each step: resolving the name, connecting, sending the request, receiving the headers, and each read of
    /// the body.
    pub(super) timeout: Duration,
}

/// Trusts the authorities that Mozilla trusts, and uses the proxy of the environment (`https_proxy`, `no_proxy` and the like).
impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings { roots: RootCerts::WebPki, proxy: Proxy::try_from_env(), timeout: TIMEOUT }
    }
}

/// The response of a server.
pub(super) struct HttpResponse {
    /// The offset of the body in the file: 0 if the server sends the full file, at most the requested offset otherwise.
    pub(super) from: u64,
    /// The length of the body in bytes, if the server reports it.
    pub(super) length: Option<u64>,
    body: BodyReader<'static>,
    timeout: Duration,
}

impl HttpResponse {
    /// Reads the next bytes of the body; 0 at its end. A body that is shorter than its length is an error.
    pub(super) fn read(&mut self, block: &mut [u8]) -> Result<usize, String> {
        self.body.read(block).map_err(|error| describe(error.into(), self.timeout))
    }
}

/// Requests a file from a byte offset on, and follows redirects.
pub(super) fn get(address: &str, from: u64, settings: &HttpSettings) -> Result<HttpResponse, String> {
    let agent = agent(settings)?;
    let send = |from| {
        send_request(&agent, address, from)
            .map_err(|error| format!("the request failed: {}", describe(error, settings.timeout)))
    };
    let mut response = send(from)?;
    let mut offset = body_offset(&response, from);
    // A partial file may be complete or longer than the published one, and a server may not send every range.
    if from > 0 && offset.is_err() {
        response = send(0)?;
        offset = body_offset(&response, 0);
    }
    let from = offset?;
    let body = response.into_body();
    let length = body.content_length();
    Ok(HttpResponse { from, length, body: body.into_reader(), timeout: settings.timeout })
}

fn agent(settings: &HttpSettings) -> Result<Agent, String> {
    let timeout = Some(settings.timeout);
    let config = Agent::config_builder()
        .tls_config(tls::configure(&settings.roots)?)
        .proxy(settings.proxy.clone())
        .https_only(true)
        .http_status_as_error(false)
        .user_agent("unisono")
        // Offsets count the bytes of the file, so the server must not compress it.
        .accept_encoding("identity")
        .timeout_resolve(timeout)
        .timeout_connect(timeout)
        .timeout_send_request(timeout)
        .timeout_recv_response(timeout)
        .timeout_per_read(timeout)
        .timeout_per_write(timeout);
    Ok(config.build().new_agent())
}

fn send_request(agent: &Agent, address: &str, from: u64) -> Result<Response<Body>, ureq::Error> {
    let request = agent.get(address);
    match from {
        0 => request.call(),
        from => request.header(header::RANGE, format!("bytes={from}-")).call(),
    }
}

/// The offset of a response's body in the file, at most the requested one.
fn body_offset(response: &Response<Body>, requested: u64) -> Result<u64, String> {
    match response.status() {
        StatusCode::OK => Ok(0),
        StatusCode::PARTIAL_CONTENT => first_byte(response)
            .filter(|first| *first <= requested)
            .ok_or_else(|| format!("the server does not send the bytes from offset {requested}")),
        status => Err(format!("the server answers `{status}` for {}", response.get_uri())),
    }
}

/// The offset in a header such as `Content-Range: bytes 100-199/200`.
fn first_byte(response: &Response<Body>) -> Option<u64> {
    let range = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn describe(error: ureq::Error, timeout: Duration) -> String {
    match error {
        ureq::Error::Timeout(Timeout::PerRead | Timeout::PerWrite) => format!("no answer within {timeout:?}"),
        ureq::Error::Timeout(step) => format!("no answer within {timeout:?} ({step})"),
        ureq::Error::RequireHttpsOnly(address) => format!("{address} is not an https:// address"),
        // Without the prefix that the library adds to errors of the operating system and of TLS.
        ureq::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}
