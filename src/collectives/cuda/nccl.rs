//! NCCL as the transport between devices: it moves bytes, and our kernels fold them in rank order, so the bits equal those
//! of every other path. Its communicators are non-blocking: a lost rank or a deadline ends the wait, and aborts the
//! communicator.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Mutex;
use std::time::Duration;

use super::jobs::{DeviceCollective, DeviceJob};
use super::kernels;
use super::rendezvous::{Rendezvous, internal_error};
use super::session::DeviceSession;
use super::windows::{Stage, stages};
use crate::cuda::{DeviceMemory, NCCL, functions};
use crate::error::{Error, Result};
use crate::transport::wait::wait;

type Communicator = *mut c_void;

/// What identifies a communicator to all of its ranks (`ncclUniqueId`), created by one of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId([u8; 128]);

/// The first fields of `ncclConfig_t`, as of version 2.18; later versions default the rest.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster: c_int,
    least_blocks: c_int,
    most_blocks: c_int,
    network: *const c_char,
    share: c_int,
}

const MAGIC: c_uint = 0xcafe_beef;
const VERSION: c_uint = 21800;
const UNDEFINED: c_int = c_int::MIN;

const IN_PROGRESS: c_int = 7;
const BYTES: c_int = 1;

functions! {
    /// The functions that are used here.
    Functions {
        unique_id = "ncclGetUniqueId"(*mut UniqueId);
        begin = "ncclCommInitRankConfig"(*mut Communicator, c_int, UniqueId, c_int, *mut Config);
        abort = "ncclCommAbort"(Communicator);
        state = "ncclCommGetAsyncError"(Communicator, *mut c_int);
        group_start = "ncclGroupStart"();
        group_end = "ncclGroupEnd"();
        send = "ncclSend"(u64, usize, c_int, c_int, Communicator, *mut c_void);
        receive = "ncclRecv"(u64, usize, c_int, c_int, Communicator, *mut c_void);
    }
}

/// The bytes of every rank that are folded at once: the scratch memory is sized for them.
const WINDOW: usize = 64 << 20;

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// A group's communicator, and scratch memory for what other ranks send to be folded.
pub(super) struct Nccl {
    functions: Functions,
    /// `None` after it was aborted.
    communicator: Mutex<Option<Handle>>,
    scratch: Mutex<Option<DeviceMemory>>,
}

#[derive(Clone, Copy)]
struct Handle(Communicator);

// SAFETY: NCCL requires one thread at a time, and the group's `CallOrder` ensures it: its calls are made one after another.
unsafe impl Send for Handle {}

impl Nccl {
    /// Collective over all ranks.
    pub fn create(rendezvous: &Rendezvous, session: &DeviceSession) -> Result<Nccl> {
        let loaded = NCCL.load()?;
        // SAFETY: the table is written as in NCCL's header, and the library is never unloaded.
        let functions = unsafe { Functions::load(loaded.library) };
        let functions = functions.map_err(|problem| NCCL.too_old(&loaded, &problem))?;
        let _entered = session.device.enter()?;
        let mut unique_id = UniqueId([0; 128]);
        if session.me == 0 {
            // SAFETY: writes one unique id.
            check(unsafe { (functions.unique_id)(&mut unique_id) }, "it cannot begin")?;
        }
        let all = rendezvous.all_gather_bytes(&unique_id.0)?;
        unique_id.0.copy_from_slice(&all[..128]);
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: VERSION,
            blocking: 0,
            cluster: UNDEFINED,
            least_blocks: UNDEFINED,
            most_blocks: UNDEFINED,
            network: std::ptr::null(),
            share: UNDEFINED,
        };
        let mut raw = std::ptr::null_mut();
        let (size, me) = (session.facts.len() as c_int, session.me as c_int);
        // SAFETY: writes one handle; the configuration begins with its size.
        let code = unsafe { (functions.begin)(&mut raw, size, unique_id, me, &mut config) };
        let nccl = Nccl { functions, communicator: Mutex::new(Some(Handle(raw))), scratch: Mutex::default() };
        started(code, "its ranks cannot find each other")?;
        nccl.wait_started(rendezvous, raw)?;
        Ok(nccl)
    }

    /// Executes this rank's part of a collective.
    pub fn execute(
        &self,
        rendezvous: &Rendezvous,
        session: &DeviceSession,
        collective: &DeviceCollective,
        counts: &[u64],
    ) -> Result<()> {
        let _entered = session.device.enter()?;
        let handle = *self.communicator.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let handle = handle.ok_or_else(|| internal_error("NCCL was given up"))?;
        let pass = NcclPass { nccl: self, rendezvous, session, collective, raw: handle.0 };
        let stages = stages(collective, session.facts.len(), counts);
        let outcome = stages.iter().try_for_each(|stage| pass.run(stage));
        outcome.map_err(|error| {
            // NCCL's kernels wait for other ranks: only aborting ends them, and only then does the device release the users'
            // memory.
            self.abort();
            let _ = session.stream.synchronize();
            rendezvous.explain(error)
        })
    }

    /// Waits until the requested operations are enqueued.
    fn wait_started(&self, rendezvous: &Rendezvous, raw: Communicator) -> Result<()> {
        let poll = || {
            let mut state = 0;
            // SAFETY: the communicator is alive; writes one number.
            check(unsafe { (self.functions.state)(raw, &mut state) }, "it does not answer")?;
            if state == IN_PROGRESS { Ok(None) } else { check(state, "a transfer failed").map(Some) }
        };
        wait(rendezvous.call.deadline(), POLL_INTERVAL, poll, || rendezvous.check_peers().map(|()| None))
    }

    fn abort(&self) {
        let taken = self.communicator.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(Handle(raw)) = taken.filter(|handle| !handle.0.is_null()) {
            // SAFETY: nothing uses the communicator any more.
            unsafe { (self.functions.abort)(raw) };
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        self.abort();
    }
}

/// One collective in progress.
struct NcclPass<'a> {
    nccl: &'a Nccl,
    rendezvous: &'a Rendezvous<'a>,
    session: &'a DeviceSession,
    collective: &'a DeviceCollective<'a>,
    raw: Communicator,
}

impl NcclPass<'_> {
    fn run(&self, stage: &Stage) -> Result<()> {
        let size = self.session.facts.len();
        let source = if stage.from_output { self.collective.output } else { self.collective.input }.address();
        let (me, output) = (self.session.me, self.collective.output.address());
        let is_fold = |job: &&DeviceJob| matches!(job, DeviceJob::Fold { .. });
        let (folds, copies): (Vec<&DeviceJob>, Vec<&DeviceJob>) = stage.jobs.iter().partition(is_fold);
        let copies = copies.into_iter().filter_map(|job| match *job {
            DeviceJob::Copy { from, to, bytes, .. } => Some((from, to, bytes)),
            DeviceJob::Fold { .. } => None,
        });
        let mut transfers = Vec::new();
        for (from, to, bytes) in copies {
            match (from.rank == me, to.rank == me) {
                (true, true) => {
                    let (from, to) = (source + from.offset as u64, output + to.offset as u64);
                    // SAFETY: both belong to this rank, are lent for the call, and do not overlap.
                    unsafe { self.session.stream.copy(to, from, bytes)? };
                }
                (true, false) => transfers.push(Transfer::Send(source + from.offset as u64, bytes, to.rank)),
                (false, true) => {
                    transfers.push(Transfer::Receive(output + to.offset as u64, bytes, from.rank))
                }
                (false, false) => {}
            }
        }
        self.transfer(&transfers)?;
        let windows = folds
            .iter()
            .map(|job| if let DeviceJob::Fold { bytes, .. } = job { bytes.div_ceil(WINDOW) } else { 0 });
        for window in 0..windows.max().unwrap_or(0) {
            self.fold(&folds, window, size, (source, output))?;
        }
        self.wait()
    }

    /// Folds one window of every fold, each at its own rank.
    fn fold(
        &self,
        folds: &[&DeviceJob],
        window: usize,
        size: usize,
        (source, output): (u64, u64),
    ) -> Result<()> {
        let me = self.session.me;
        let (mut transfers, mut mine) = (Vec::new(), None);
        for job in folds {
            let DeviceJob::Fold { worker, offset, bytes, to } = job else { continue };
            let start = (window * WINDOW).min(*bytes);
            let length = WINDOW.min(bytes - start);
            if *worker == me {
                mine = to.first().map(|to| (offset + start, length, output + (to.offset + start) as u64));
            } else if length > 0 {
                transfers.push(Transfer::Send(source + (offset + start) as u64, length, *worker));
            }
        }
        let Some((start, length, target)) = mine.filter(|(_, length, _)| *length > 0) else {
            return self.transfer(&transfers);
        };
        let mut scratch = self.nccl.scratch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let make = |bytes| DeviceMemory::new(&self.session.device, bytes);
        let wanted = size * length.next_multiple_of(256);
        let scratch =
            super::session::ensure_capacity(&mut scratch, wanted, DeviceMemory::bytes, make)?.address();
        let mut from = Vec::with_capacity(size);
        for rank in 0..size {
            if rank == me {
                from.push(source + start as u64);
                continue;
            }
            let place = scratch + (rank * length.next_multiple_of(256)) as u64;
            transfers.push(Transfer::Receive(place, length, rank));
            from.push(place);
        }
        self.transfer(&transfers)?;
        let kind = self.collective.spec.reduction();
        let on = (&self.session.device, &self.session.stream);
        // SAFETY: every source has `length` bytes; the target belongs to this rank, is lent for the call, and may be its own
        // source.
        unsafe { kernels::fold(on, kind, length / self.collective.spec.dtype.size(), &from, &[target]) }
    }

    /// Enqueues one group of transfers, on this rank and on its peers.
    fn transfer(&self, transfers: &[Transfer]) -> Result<()> {
        if transfers.is_empty() {
            return Ok(());
        }
        let functions = &self.nccl.functions;
        let stream: *mut c_void = std::ptr::without_provenance_mut(self.session.stream.handle() as usize);
        // SAFETY: the communicator is alive; the memory is lent for the call, and the peers pass the same lengths.
        unsafe {
            started((functions.group_start)(), "a group of transfers")?;
            let queued = transfers.iter().try_for_each(|transfer| {
                let code = match *transfer {
                    Transfer::Send(from, bytes, to) => {
                        (functions.send)(from, bytes, BYTES, to as c_int, self.raw, stream)
                    }
                    Transfer::Receive(to, bytes, from) => {
                        (functions.receive)(to, bytes, BYTES, from as c_int, self.raw, stream)
                    }
                };
                started(code, "a transfer")
            });
            // An open group would capture every later NCCL operation of this thread.
            let ended = started((functions.group_end)(), "a group of transfers");
            queued.and(ended)?;
        }
        self.nccl.wait_started(self.rendezvous, self.raw)
    }

    /// Waits for the device, where NCCL's kernels wait for other ranks.
    fn wait(&self) -> Result<()> {
        let poll = || {
            if self.session.stream.is_done()? {
                return Ok(Some(()));
            }
            self.nccl.wait_started(self.rendezvous, self.raw).map(|()| None)
        };
        wait(self.rendezvous.call.deadline(), POLL_INTERVAL, poll, || {
            self.rendezvous.check_peers().map(|()| None)
        })
    }
}

/// Bytes to or from a rank.
enum Transfer {
    Send(u64, usize, usize),
    Receive(u64, usize, usize),
}

/// As [`check`], for operations that may continue in the background.
fn started(code: c_int, what: &str) -> Result<()> {
    if code == IN_PROGRESS { Ok(()) } else { check(code, what) }
}

fn check(code: c_int, what: &str) -> Result<()> {
    let words = match code {
        0 => return Ok(()),
        1 => "the device failed",
        2 => "the system failed",
        3 => "internal error",
        4 => "invalid argument",
        5 => "invalid usage: two ranks on one device need a NCCL_HOSTID each",
        6 => "another rank failed",
        _ => "unknown error",
    };
    let advice = "NCCL_DEBUG=WARN shows why; UNISONO_CUDA_PATH=staged does without it";
    Err(Error::io("NCCL", what, std::io::Error::other(format!("{words} ({code})")), advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_laid_out_as_in_the_header() {
        assert_eq!((size_of::<Config>(), std::mem::offset_of!(Config, network)), (48, 32));
        assert_eq!((std::mem::offset_of!(Config, blocking), std::mem::offset_of!(Config, share)), (16, 40));
    }

    #[test]
    fn errors_say_what_to_do() {
        assert!(started(IN_PROGRESS, "").is_ok() && check(0, "").is_ok());
        let error = check(5, "its ranks cannot find each other").unwrap_err().to_string();
        assert!(error.contains("NCCL_HOSTID") && error.contains("NCCL_DEBUG=WARN"), "{error}");
    }
}
