//! Environment settings: the transport, the timeout, the number of simulated hosts.

use std::time::Duration;

use crate::error::{Error, Result};

/// The timeout of calls unless set otherwise.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The transports that `UNISONO_TRANSPORT` can select.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransportChoice {
    Shm,
    Mpi,
}

/// A variable of this process's environment. A value that is not valid UTF-8 still counts as set.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

pub(super) fn transport(variable: impl Fn(&str) -> Option<String>) -> Result<Option<TransportChoice>> {
    match variable("UNISONO_TRANSPORT").as_deref() {
        None | Some("") => Ok(None),
        Some("shm") => Ok(Some(TransportChoice::Shm)),
        Some("mpi") => Ok(Some(TransportChoice::Mpi)),
        Some(other) => Err(Error::usage(
            "init",
            "UNISONO_TRANSPORT to be shm or mpi",
            format!("{other:?}"),
            "unset it to let unisono choose",
        )),
    }
}

pub(super) fn timeout(variable: impl Fn(&str) -> Option<String>) -> Result<Duration> {
    let Some(text) = variable("UNISONO_TIMEOUT") else { return Ok(DEFAULT_TIMEOUT) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| {
        Error::usage(
            "init",
            "seconds above zero in UNISONO_TIMEOUT",
            format!("{text:?}"),
            "write for example 60",
        )
    })
}

/// The number of hosts that the ranks of one host simulate.
pub(super) fn hosts(variable: impl Fn(&str) -> Option<String>) -> Result<usize> {
    let Some(text) = variable("UNISONO_HOSTS") else { return Ok(1) };
    let hosts = text.parse::<u32>().ok().filter(|&hosts| hosts > 0).map(|hosts| hosts as usize);
    hosts.ok_or_else(|| {
        let expected = "a number above zero in UNISONO_HOSTS";
        Error::usage("init", expected, format!("{text:?}"), "write for example 2, or unset it")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::testing::{fuzz, mutate};
    use crate::transport::arena::heap_bytes_of;
    use crate::world::launcher::{self, OWN};

    #[test]
    fn damaged_environments() {
        let good = [
            "UNISONO_RANK=2\nUNISONO_SIZE=4\nUNISONO_JOB=abc\nUNISONO_RESTARTS=1\nUNISONO_TIMEOUT=2.5",
            "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nUNISONO_TRANSPORT=shm",
            "OMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=1\nUNISONO_HOSTS=2",
            "PMI_RANK=3\nPMI_SIZE=4\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nUNISONO_TRANSPORT=mpi",
            "SLURM_PROCID=5\nSLURM_STEP_NUM_TASKS=6\nSLURM_STEP_TASKS_PER_NODE=2(x3)\nSLURM_JOB_ID=7\nSLURM_STEP_ID=1",
            "PMIX_RANK=1\nPMIX_NAMESPACE=prterun-host-7@1\nUNISONO_HEAP=1024\nUNISONO_TIMEOUT=1e9",
        ];
        fuzz!(|script: &[u8]| {
            let bytes = mutate(&good, script);
            let text = String::from_utf8_lossy(&bytes);
            let variables: HashMap<&str, &str> =
                text.lines().filter_map(|line| line.split_once('=')).collect();
            let variable = |name: &str| variables.get(name).map(|value| value.to_string());
            let names_a_variable = |error: Error| {
                let text = error.to_string();
                assert!(variables.keys().any(|name| !name.is_empty() && text.contains(name)), "{text}");
            };
            match launcher::detect(variable) {
                Err(error) => names_a_variable(error),
                Ok(placement) => {
                    assert!(placement.rank < placement.size || placement.launcher == "PMIx", "{placement:?}");
                    let (rank, size) = (placement.local_rank.unwrap_or(0), placement.local_size);
                    assert!(size.is_none_or(|size| rank < size), "{placement:?}");
                    assert!(u32::try_from(placement.restarts).is_ok());
                    // A rank that its launcher has named never takes itself for a world of one.
                    let named =
                        variables.contains_key("PMIX_RANK") && variables.contains_key("PMIX_NAMESPACE");
                    assert!(!named || placement.launcher != "none", "{placement:?}");
                    let own =
                        variables.contains_key("UNISONO_RANK") && variables.contains_key("UNISONO_SIZE");
                    assert!(!own || placement.launcher == OWN, "{placement:?}");
                }
            }
            if let Err(error) = transport(variable) {
                names_a_variable(error);
            }
            match timeout(variable) {
                Ok(timeout) => assert!(!timeout.is_zero()),
                Err(error) => names_a_variable(error),
            }
            match hosts(variable) {
                Ok(hosts) => assert!(hosts > 0),
                Err(error) => names_a_variable(error),
            }
            match heap_bytes_of(variable("UNISONO_HEAP"), || 1) {
                Ok(bytes) => assert!(bytes > 0),
                Err(error) => names_a_variable(error),
            }
        });
    }
}
