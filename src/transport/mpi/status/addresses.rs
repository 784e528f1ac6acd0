//! The addresses at which other hosts may reach this one, and how ranks exchange them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytemuck::{Pod, Zeroable};

use super::wire::JobToken;

/// Addresses that a rank announces, at most.
const MAX_ADDRESSES: usize = 8;

/// What each rank announces about its service.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(in crate::transport::mpi) struct ServiceAddress {
    /// IPv6 addresses, or IPv4 addresses mapped to IPv6; all zero if there are fewer.
    addresses: [[u8; 16]; MAX_ADDRESSES],
    /// The job's token is that of rank 0.
    pub(super) token: JobToken,
    /// Zero if this rank has no service.
    port: u16,
}

impl ServiceAddress {
    /// Port 0: this rank has no service.
    pub(super) fn own(port: u16) -> ServiceAddress {
        let mut addresses = [[0; 16]; MAX_ADDRESSES];
        for (place, address) in addresses.iter_mut().zip(interface_addresses()) {
            *place = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
        }
        ServiceAddress { addresses, token: random_token(), port }
    }

    /// Where to connect to this service from a rank with the service `own`. `same_network`: both ranks use one network
    /// namespace, and so the same loopback interface.
    pub(super) fn reachable_from(&self, own: &ServiceAddress, same_network: bool) -> Vec<SocketAddr> {
        if self.port == 0 {
            return Vec::new();
        }
        if same_network {
            return vec![(Ipv4Addr::LOCALHOST, self.port).into()];
        }
        // An address that both have, such as that of a container bridge, leads back to this host.
        let others = self.addresses.iter().filter(|one| **one != [0; 16] && !own.addresses.contains(one));
        others.map(|one| (Ipv6Addr::from(*one).to_canonical(), self.port).into()).collect()
    }
}

/// All zero if the system has no random numbers: then services reply to nothing.
fn random_token() -> JobToken {
    let mut token = JobToken::default();
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut token));
    if read.is_err() { JobToken::default() } else { token }
}

/// The addresses of this network namespace's interfaces that other hosts can use, without loopback and link-local ones.
fn interface_addresses() -> Vec<IpAddr> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let v4 = parse_fib_trie(&read("/proc/self/net/fib_trie"));
    let v6 = parse_if_inet6(&read("/proc/self/net/if_inet6"));
    let mut found: Vec<IpAddr> = v4.into_iter().map(IpAddr::V4).collect();
    found.extend(v6.into_iter().map(IpAddr::V6));
    found
}

/// The local addresses in the kernel's routing table: each line `|-- ADDRESS` before a line `/32 host LOCAL`.
fn parse_fib_trie(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last
            && !address.is_loopback()
            && !address.is_link_local()
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// Lines of `ADDRESS INDEX PREFIX SCOPE FLAGS NAME` in hexadecimal; scope 0 is global.
fn parse_if_inet6(text: &str) -> Vec<Ipv6Addr> {
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(2)? == "00").then(|| Ipv6Addr::from_bits(address))
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.77.0.0\n        /24 link UNICAST\n     |-- 10.77.0.1\n        /32 host LOCAL\n     |-- 10.77.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.77.0.1\n        /32 host LOCAL\n";
        assert_eq!(parse_fib_trie(trie), [Ipv4Addr::new(10, 77, 0, 1)]);
        let interfaces = "00000000000000000000000000000001 01 80 10 80 lo\nfd000000000000000000000000000005 02 40 00 80 eth0\nfe80000000000000ccdf48fffe5a0b4b 02 40 20 80 eth0\nnonsense\n";
        assert_eq!(parse_if_inet6(interfaces), ["fd00::5".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn addresses_that_lead_back_are_left_out() {
        let address = |addresses: &[[u8; 4]], port| {
            let mut one = ServiceAddress { addresses: [[0; 16]; MAX_ADDRESSES], token: [1; 16], port };
            for (place, address) in one.addresses.iter_mut().zip(addresses) {
                *place = Ipv4Addr::from(*address).to_ipv6_mapped().octets();
            }
            one
        };
        let own = address(&[[172, 17, 0, 1], [10, 0, 0, 1]], 5);
        let other = address(&[[172, 17, 0, 1], [10, 0, 0, 2]], 6);
        assert_eq!(other.reachable_from(&own, false), ["10.0.0.2:6".parse().unwrap()]);
        assert_eq!(other.reachable_from(&own, true), ["127.0.0.1:6".parse().unwrap()]);
        assert_eq!(address(&[[10, 0, 0, 2]], 0).reachable_from(&own, false), [], "it has no service");
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(random_token(), random_token());
    }
}
