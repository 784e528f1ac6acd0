//! The path that data takes between the ranks' devices: a pure function of what the ranks publish.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};

/// How device memory of one rank reaches another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// All ranks are threads of one process: they know each other's addresses.
    Direct,
    /// CUDA IPC: the driver maps the others' memory into each process.
    Ipc,
    /// NVIDIA's library: every rank has its own device.
    Nccl,
    /// Through pinned host memory.
    Staged,
}

impl Path {
    pub const fn name(self) -> &'static str {
        match self {
            Path::Direct => "direct",
            Path::Ipc => "ipc",
            Path::Nccl => "nccl",
            Path::Staged => "staged",
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a rank publishes about itself with every call: while nothing changes on any rank, the path stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RankFacts {
    /// The UUID of the device it uses.
    pub device: [u8; 16],
    /// The identifier of its process.
    pub process: u64,
    /// The index of its host.
    pub host: u32,
    /// The path that its user requests: a [`PathChoice`].
    pub choice: u32,
}

/// The value of `UNISONO_CUDA_PATH`, as sent to the other ranks.
pub(super) struct PathChoice;

impl PathChoice {
    const NONE: u32 = 0;
    const IPC: u32 = 1;
    pub const NCCL: u32 = 2;
    pub const STAGED: u32 = 3;

    /// Parses the variable's value.
    pub fn parse(value: Option<&str>) -> Result<u32> {
        match value {
            None | Some("") => Ok(PathChoice::NONE),
            Some("ipc" | "direct") => Ok(PathChoice::IPC),
            Some("nccl") => Ok(PathChoice::NCCL),
            Some("staged") => Ok(PathChoice::STAGED),
            Some(other) => Err(Error::usage(
                "UNISONO_CUDA_PATH",
                "ipc, nccl or staged",
                format!("{other:?}"),
                "leave it out to let unisono choose",
            )),
        }
    }
}

/// What a rank supports, found out by trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Capabilities {
    /// NCCL was found.
    pub nccl: u32,
    /// The memory of the others on this host could be opened.
    pub ipc: u32,
}

/// The path of these ranks. `most` is the most ranks that a kernel can serve.
pub(super) fn choose(facts: &[RankFacts], capabilities: &[Capabilities], most: usize) -> Result<Path> {
    let first = facts[0];
    let same = |what: fn(&RankFacts) -> (u32, u64)| facts.iter().all(|one| what(one) == what(&first));
    if facts.iter().any(|one| one.choice != first.choice) {
        let received = "different ones";
        let advice = "set it for all ranks or for none";
        return Err(Error::usage("UNISONO_CUDA_PATH", "the same value on every rank", received, advice));
    }
    let one_process = same(|one| (one.host, one.process));
    let fits = facts.len() <= most;
    let opens = fits && capabilities.iter().all(|one| one.ipc != 0);
    let ipc = opens && same(|one| (one.host, 0));
    let apart = |at: usize| facts[..at].iter().all(|other| other.device != facts[at].device);
    let nccl = capabilities.iter().all(|one| one.nccl != 0);
    let reject = |what: &str, advice: &str| Err(Error::unsupported("UNISONO_CUDA_PATH", what, advice));
    match first.choice {
        PathChoice::STAGED => Ok(Path::Staged),
        PathChoice::NCCL if facts.len() == 1 => Ok(Path::Direct),
        PathChoice::NCCL if nccl => Ok(Path::Nccl),
        PathChoice::NCCL => reject("nccl is wanted, but some rank has no NCCL", "see `unisono doctor`"),
        _ if one_process && opens => Ok(Path::Direct),
        PathChoice::IPC if ipc => Ok(Path::Ipc),
        PathChoice::IPC => reject(
            "ipc is wanted, but some rank cannot open the others' memory",
            "ranks must be on one host, and their container must let them see each other",
        ),
        _ if nccl && facts.len() > 1 && (0..facts.len()).all(apart) => Ok(Path::Nccl),
        _ if ipc => Ok(Path::Ipc),
        _ => Ok(Path::Staged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks as (host, process, device).
    fn ranks(places: &[(u32, u64, u8)]) -> Vec<RankFacts> {
        let one = |&(host, process, device): &(u32, u64, u8)| RankFacts {
            device: [device; 16],
            process,
            host,
            choice: PathChoice::NONE,
        };
        places.iter().map(one).collect()
    }

    fn chosen(places: &[(u32, u64, u8)], nccl: bool, ipc: bool) -> Path {
        let capabilities = Capabilities { nccl: nccl.into(), ipc: ipc.into() };
        choose(&ranks(places), &vec![capabilities; places.len()], 128).unwrap()
    }

    #[test]
    fn the_path_follows_from_where_ranks_are() {
        let shared = [(0, 1, 7), (0, 2, 7)];
        let apart = [(0, 1, 7), (0, 2, 8)];
        assert_eq!(chosen(&[(0, 1, 7)], false, true), Path::Direct);
        assert_eq!(chosen(&[(0, 1, 7), (0, 1, 8)], false, false), Path::Staged, "devices without a link");
        assert_eq!(chosen(&[(0, 1, 7), (0, 1, 8)], true, true), Path::Direct, "threads of one process");
        assert_eq!(chosen(&apart, true, true), Path::Nccl, "a device each");
        assert_eq!(chosen(&apart, false, true), Path::Ipc, "without NCCL");
        assert_eq!(chosen(&shared, true, true), Path::Ipc, "NCCL rejects two ranks on one device");
        assert_eq!(chosen(&shared, true, false), Path::Staged, "a container that hides processes");
        assert_eq!(chosen(&[(0, 1, 7), (1, 1, 8)], true, false), Path::Nccl, "between hosts");
        assert_eq!(chosen(&[(0, 1, 7), (1, 1, 8)], false, true), Path::Staged, "between hosts");
        assert_eq!(chosen(&[(0, 1, 7), (1, 1, 7)], true, true), Path::Staged, "one device at two hosts");
    }

    #[test]
    fn many_ranks_are_too_many_for_a_kernel() {
        let capabilities = vec![Capabilities { nccl: 0, ipc: 1 }; 3];
        assert_eq!(choose(&ranks(&[(0, 1, 7); 3]), &capabilities, 2).unwrap(), Path::Staged);
        assert_eq!(
            choose(&ranks(&[(0, 1, 7), (0, 2, 7), (0, 3, 7)]), &capabilities, 2).unwrap(),
            Path::Staged
        );
    }

    #[test]
    fn wishes_are_granted_where_they_can_be() {
        let requested = |choice: &str, nccl: bool, ipc: bool| {
            let mut facts = ranks(&[(0, 1, 7), (0, 2, 7)]);
            facts.iter_mut().for_each(|one| one.choice = PathChoice::parse(Some(choice)).unwrap());
            choose(&facts, &[Capabilities { nccl: nccl.into(), ipc: ipc.into() }; 2], 128)
        };
        assert_eq!(requested("staged", true, true).unwrap(), Path::Staged);
        assert_eq!(requested("nccl", true, true).unwrap(), Path::Nccl);
        assert_eq!(requested("ipc", true, true).unwrap(), Path::Ipc);
        assert!(requested("nccl", false, true).unwrap_err().to_string().contains("no NCCL"));
        assert!(requested("ipc", true, false).unwrap_err().to_string().contains("cannot open"));
        assert!(PathChoice::parse(Some("fast")).unwrap_err().to_string().contains("ipc, nccl or staged"));
        let mut facts = ranks(&[(0, 1, 7), (0, 2, 7)]);
        facts[1].choice = PathChoice::STAGED;
        assert!(choose(&facts, &[Capabilities { nccl: 1, ipc: 1 }; 2], 128).is_err());
    }
}
