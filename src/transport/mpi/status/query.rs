//! One question to one rank's service: connects to all its addresses at once, without blocking, and takes the first valid
//! reply.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::wire::{JobToken, ReplyError, StatusReply, StatusRequest};

/// A question in progress.
pub(super) struct StatusQuery {
    token: JobToken,
    /// The number of ranks.
    size: usize,
    /// The rank that is asked.
    pub asked: usize,
    about: usize,
    request: StatusRequest,
    attempts: Vec<Attempt>,
    until: Instant,
    /// Whether the only address is one at which the service has replied before.
    proven: bool,
    refused: bool,
    accepted: bool,
}

/// A connection to one address.
struct Attempt {
    address: SocketAddr,
    stream: TcpStream,
    connected: bool,
    received: Vec<u8>,
}

/// How a question ended.
#[derive(Debug)]
pub(super) enum QueryOutcome {
    Reply(StatusReply, SocketAddr),
    /// The host of the rank reports that no process listens where its service has replied before.
    Refused,
    /// No valid reply. Proves nothing.
    Failed {
        /// Whether a connection was accepted: the host runs, and perhaps the process.
        accepted: bool,
        /// Whether the connection was closed before a reply.
        closed: bool,
    },
}

/// Why an attempt has ended.
enum AttemptEnd {
    Refused,
    Closed,
    Failed,
}

/// Where and what to ask.
pub(super) struct Question<'a> {
    pub token: JobToken,
    pub size: usize,
    pub asked: usize,
    pub about: usize,
    pub locate: bool,
    pub addresses: &'a [SocketAddr],
    /// Whether the service has replied at the only address before.
    pub proven: bool,
    pub until: Instant,
}

impl StatusQuery {
    /// Starts to connect.
    pub fn start(question: Question) -> StatusQuery {
        let Question { token, size, asked, about, locate, addresses, proven, until } = question;
        let mut query = StatusQuery {
            token,
            size,
            asked,
            about,
            request: StatusRequest::new(token, about, locate),
            attempts: Vec::new(),
            until,
            proven,
            refused: false,
            accepted: false,
        };
        for &address in addresses {
            match connect(address) {
                Ok(stream) => {
                    query.attempts.push(Attempt { address, stream, connected: false, received: Vec::new() })
                }
                Err(error) => query.refused |= error.kind() == ErrorKind::ConnectionRefused,
            }
        }
        query
    }

    /// When to give up.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The sockets whose events may advance the query, and whether each waits for its connection.
    pub fn sockets(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.attempts.iter().map(|attempt| (attempt.stream.as_fd(), !attempt.connected))
    }

    /// Makes as much progress as possible without blocking; returns the outcome when there is one.
    pub fn advance(&mut self) -> Option<QueryOutcome> {
        let mut closed = false;
        let mut index = 0;
        while let Some(attempt) = self.attempts.get_mut(index) {
            let outcome = attempt.advance(&self.request, |bytes| {
                StatusReply::read(bytes, &self.token, (self.asked, self.about), self.size)
            });
            self.accepted |= attempt.connected;
            match outcome {
                Ok(Some(reply)) => return Some(QueryOutcome::Reply(reply, attempt.address)),
                Ok(None) => index += 1,
                Err(end) => {
                    self.refused |= matches!(end, AttemptEnd::Refused);
                    closed |= matches!(end, AttemptEnd::Closed);
                    self.attempts.swap_remove(index);
                }
            }
        }
        if !self.attempts.is_empty() && Instant::now() < self.until {
            return None;
        }
        if self.attempts.is_empty() && self.proven && self.refused {
            return Some(QueryOutcome::Refused);
        }
        Some(QueryOutcome::Failed { accepted: self.accepted, closed })
    }
}

impl Attempt {
    fn advance(
        &mut self,
        request: &StatusRequest,
        read: impl Fn(&[u8]) -> Result<StatusReply, ReplyError>,
    ) -> Result<Option<StatusReply>, AttemptEnd> {
        if !self.connected {
            // Fails with WouldBlock while the connection is being established, and with its error if that fails.
            match self.stream.write(bytemuck::bytes_of(request)) {
                Ok(StatusRequest::SIZE) => self.connected = true,
                Ok(_) => return Err(AttemptEnd::Failed),
                Err(error) if is_pending(&error) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    return Err(AttemptEnd::Refused);
                }
                Err(_) => return Err(AttemptEnd::Failed),
            }
        }
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(AttemptEnd::Closed),
                Ok(bytes) => self.received.extend_from_slice(&part[..bytes]),
                Err(error) if is_pending(&error) => return Ok(None),
                Err(_) => return Err(AttemptEnd::Closed),
            }
            match read(&self.received) {
                Ok(reply) => return Ok(Some(reply)),
                Err(ReplyError::Incomplete) => {}
                Err(ReplyError::Invalid) => return Err(AttemptEnd::Failed),
            }
        }
    }
}

pub(super) fn is_pending(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected)
}

/// Starts to connect, without blocking.
fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}
