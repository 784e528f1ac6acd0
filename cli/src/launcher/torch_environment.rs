//! The environment variables of PyTorch's launcher, from which `torch.distributed.init_process_group` reads its rank and
//! where to rendezvous.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// What the ranks of a job need in order to rendezvous through PyTorch's TCP store, which rank 0 starts.
pub(super) struct TorchEnvironment {
    /// `None` on a machine without a loopback interface: then there is no TCP store, either.
    port: Option<ReservedPort>,
}

impl TorchEnvironment {
    pub(super) fn new() -> TorchEnvironment {
        TorchEnvironment { port: ReservedPort::new() }
    }

    pub(super) fn variables(&self, rank: usize, size: usize) -> Vec<(&'static str, String)> {
        let mut variables = vec![
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", rank.to_string()),
            ("LOCAL_WORLD_SIZE", size.to_string()),
        ];
        if let Some(port) = &self.port {
            variables.push(("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string()));
            variables.push(("MASTER_PORT", port.number.to_string()));
        }
        variables
    }
}

/// A TCP port of the loopback interface that the kernel assigns to no other process while this value lives.
///
/// A rank can listen on it nevertheless: Linux lets sockets with `SO_REUSEADDR` share a port as long as only one of them
/// listens, and every TCP server sets that option, to be restarted at once.
struct ReservedPort {
    number: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    fn new() -> Option<ReservedPort> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).ok()?;
        // Only now: with the option set, the kernel could have chosen a port that another launcher has reserved.
        sockopt::set_socket_reuseaddr(&socket, true).ok()?;
        let number = SocketAddrV4::try_from(getsockname(&socket).ok()?).ok()?.port();
        Some(ReservedPort { number, _socket: socket })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_rank_can_listen_on_the_reserved_port() {
        let port = ReservedPort::new().unwrap();
        // The standard library sets SO_REUSEADDR, as PyTorch does.
        for address in ["127.0.0.1", "[::]"] {
            let listener = TcpListener::bind(format!("{address}:{}", port.number)).unwrap();
            TcpStream::connect(("127.0.0.1", port.number)).unwrap();
            assert!(listener.accept().is_ok());
        }
    }

    #[test]
    fn launchers_reserve_different_ports() {
        let ports: Vec<_> = (0..50).map(|_| ReservedPort::new().unwrap()).collect();
        let numbers: std::collections::HashSet<_> = ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers.len(), ports.len());
    }
}
