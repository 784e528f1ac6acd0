//! Direct execution: every rank's memory has an address in the process that works on it.

use super::jobs::{DeviceCollective, DeviceJob};
use super::kernels::{self, DeviceCopy};
use super::rendezvous::Rendezvous;
use super::session::{DeviceSession, RankDescriptor};
use crate::error::Result;

/// Executes this rank's jobs and waits for them.
pub(super) fn execute(
    rendezvous: &Rendezvous,
    session: &DeviceSession,
    collective: &DeviceCollective,
    (descriptors, counts): (&[RankDescriptor], &[u64]),
) -> Result<()> {
    let jobs = collective.jobs(descriptors.len(), &session.workers, counts);
    let on = (&session.device, &session.stream);
    let mut open = Vec::new();
    let mut address = |rank: usize, is_input: bool, offset: usize| -> Result<u64> {
        let exported = if is_input { &descriptors[rank].input } else { &descriptors[rank].output };
        let (address, mapped) = session.address(rank, exported)?;
        open.extend(mapped);
        Ok(address + offset as u64)
    };
    let kind = collective.spec.reduction();
    let (mut pieces, mut folds) = (Vec::new(), Vec::new());
    for job in jobs.iter().filter(|job| job.worker() == session.me) {
        match job {
            DeviceJob::Copy { from, to, bytes, .. } => {
                let (from, to) =
                    (address(from.rank, true, from.offset)?, address(to.rank, false, to.offset)?);
                if from != to {
                    pieces.push(DeviceCopy { from, to, bytes: *bytes });
                }
            }
            DeviceJob::Fold { offset, bytes, to, .. } => {
                let from: Vec<u64> =
                    (0..descriptors.len()).map(|rank| address(rank, true, *offset)).collect::<Result<_>>()?;
                let to: Vec<u64> =
                    to.iter().map(|to| address(to.rank, false, to.offset)).collect::<Result<_>>()?;
                folds.push((bytes / collective.spec.dtype.size(), from, to));
            }
        }
    }
    if pieces.is_empty() && folds.is_empty() {
        return Ok(());
    }
    // Opening memory and compiling take time, and other ranks may have left meanwhile: then their memory is no longer ours
    // to use.
    kernels::compile(
        &session.device,
        !pieces.is_empty(),
        folds.iter().map(|(_, from, to)| (kind, from, to)),
    )?;
    let launch = || -> Result<()> {
        // SAFETY: every rank lends its buffers until all have synchronised again, or until it has given up and no rank
        // touches them, and described them with the lengths in the signature; jobs do not overlap.
        unsafe {
            folds.iter().try_for_each(|(count, from, to)| kernels::fold(on, kind, *count, from, to))?;
            kernels::copy(on, &pieces)
        }
    };
    rendezvous.touch(|| {
        // What was launched before an error must finish using the other ranks' memory first.
        launch().inspect_err(|_| drop(session.stream.synchronize()))?;
        session.stream.wait(&|| rendezvous.go_on())
    })
}
