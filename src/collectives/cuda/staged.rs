//! Staged execution: every rank copies its data, window by window, to pinned memory that all ranks of the host share, and
//! copies what it needs of the others' data from there. Device-to-host copies, host-to-device copies and kernels overlap.
//! For two ranks:
//!
//! ```text
//! D2H       a0 b0 a1 b1 a2 b2 a3 b3 …
//! H2D             b0 a0 b1 a1 b2 a2 b3 a3 …      (a takes b's windows, and b takes a's)
//! kernels            a0    b0 a1 b1 …
//! ```
//!
//! Shorter windows would fill both directions sooner, but ranks synchronise for each of them: on an H200, windows of 2 MiB
//! were slower than windows of 8 MiB, and so were windows that are short at both ends and long in between.

use std::cell::RefCell;
use std::sync::Arc;

use super::jobs::{DeviceCollective, DeviceJob};
use super::kernels;
use super::rendezvous::{Rendezvous, internal_error};
use super::session::DeviceSession;
use super::windows::{Stage, common, stages};
use crate::cuda::{Device, DeviceMemory, Event, Registered, Stream};
use crate::error::Result;
use crate::transport::{ArenaBuffer, WholeArena};

/// Bytes of a window: long enough that synchronising costs little compared to the copy.
const WINDOW: usize = 8 << 20;

/// The number of windows that a rank has in shared memory, used in turn.
const SLOTS: usize = 4;

/// The number of windows that a rank copies out before all ranks have published the first of them.
const AHEAD: usize = 2;

/// The number of windows of other ranks' data that are on the device at once.
const SCRATCHES: usize = 2;

const PAGE: usize = 4096;

/// A group's pinned memory, as this rank sees it, and the streams and scratch memory to use it.
pub(super) struct Staging {
    /// Keep the host's memory pinned; dropped before the memory itself.
    _pinned: Vec<Registered>,
    /// The address of each rank's first slot.
    slots: Vec<u64>,
    /// Windows of the other ranks, for data that is folded.
    scratch: [DeviceMemory; SCRATCHES],
    d2h: Stream,
    h2d: Stream,
    compute: Stream,
    _mine: ArenaBuffer,
}

impl Staging {
    /// Collective; `None` on all ranks if one of them fails.
    pub fn create(rendezvous: &Rendezvous, session: &DeviceSession) -> Result<Option<Staging>> {
        let made = Staging::make(rendezvous, session);
        let (offset, mine) = match made {
            Ok(made) => (made.1 as u64, Some(made.0)),
            Err(_) => (u64::MAX, None),
        };
        let all = rendezvous.all_gather_bytes(&offset.to_ne_bytes())?;
        let offsets: Vec<u64> = all.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let staging = mine
            .filter(|_| offsets.iter().all(|&offset| offset != u64::MAX))
            .and_then(|mine| Staging::open(rendezvous, session, mine, &offsets).ok());
        let all = rendezvous.all_gather_bytes(&[u8::from(staging.is_some())])?;
        Ok(staging.filter(|_| all.iter().all(|&made| made == 1)))
    }

    /// This rank's slots in the shared memory, and the offset of their first page.
    fn make(rendezvous: &Rendezvous, session: &DeviceSession) -> Result<(ArenaBuffer, usize)> {
        let endpoint = rendezvous.group.endpoint();
        let endpoint = endpoint.filter(|_| rendezvous.group.channel().is_some());
        let endpoint = endpoint.ok_or_else(|| internal_error("ranks share no memory"))?;
        let buffer = endpoint.allocate(SLOTS * WINDOW + PAGE)?;
        let start = buffer.offset().next_multiple_of(PAGE);
        tracing::debug!(rank = session.me, "staging through {} bytes", SLOTS * WINDOW);
        Ok((buffer, start))
    }

    fn open(
        rendezvous: &Rendezvous,
        session: &DeviceSession,
        mine: ArenaBuffer,
        offsets: &[u64],
    ) -> Result<Staging> {
        let device = &session.device;
        let endpoint = rendezvous.group.endpoint();
        let endpoint = endpoint.ok_or_else(|| internal_error("a rank without an endpoint"))?;
        let arena = WholeArena::new(endpoint);
        // Ranks of one process see the same memory, and it is pinned once: each pins its own, and the first of them pins
        // that of other processes.
        let process = |rank: usize| session.facts[rank].process;
        let first = (0..session.me).all(|rank| process(rank) != process(session.me));
        let pins = |rank: usize| match process(rank) == process(session.me) {
            true => rank == session.me,
            false => first,
        };
        let (mut pinned, mut slots) = (Vec::new(), Vec::new());
        for (rank, &offset) in offsets.iter().enumerate() {
            if offset as usize + SLOTS * WINDOW > arena.len() {
                return Err(internal_error("a rank's slots lie outside the shared memory"));
            }
            let start = arena.as_mut_ptr().wrapping_add(offset as usize);
            if pins(rank) {
                // SAFETY: the arena is mapped as long as the local endpoint, which the buffer keeps alive; it is dropped
                // after these.
                pinned.push(unsafe { Registered::new(device, start, SLOTS * WINDOW)? });
            }
            slots.push(start.addr() as u64);
        }
        let room = (offsets.len().max(2) - 1) * WINDOW;
        let scratch = || DeviceMemory::new(device, room);
        Ok(Staging {
            _pinned: pinned,
            slots,
            scratch: [scratch()?, scratch()?],
            d2h: Stream::new(device)?,
            h2d: Stream::new(device)?,
            compute: Stream::new(device)?,
            _mine: mine,
        })
    }

    /// Executes this rank's part of a collective.
    pub fn execute(
        &self,
        rendezvous: &Rendezvous,
        session: &DeviceSession,
        collective: &DeviceCollective,
        counts: &[u64],
    ) -> Result<()> {
        for stage in stages(collective, rendezvous.group.size(), counts) {
            let pass = StagedPass {
                staging: self,
                rendezvous,
                collective,
                stage: &stage,
                device: &session.device,
                me: session.me,
                folded: RefCell::default(),
            };
            pass.run().inspect_err(|_| {
                // The device must no longer use the users' memory.
                for stream in [&self.d2h, &self.h2d, &self.compute] {
                    let _ = stream.synchronize();
                }
            })?;
        }
        Ok(())
    }
}

/// One stage in progress.
struct StagedPass<'a> {
    staging: &'a Staging,
    rendezvous: &'a Rendezvous<'a>,
    collective: &'a DeviceCollective<'a>,
    stage: &'a Stage,
    device: &'a Arc<Device>,
    me: usize,
    /// When the scratch memory for other ranks' data was last used.
    folded: RefCell<[Option<Event>; SCRATCHES]>,
}

impl StagedPass<'_> {
    /// Publishes window after window, and works on each once all ranks have published it. A slot is overwritten when all
    /// ranks have taken what was in it; meanwhile the copies out continue with the next slot.
    fn run(&self) -> Result<()> {
        let Staging { d2h, h2d, compute, .. } = self.staging;
        let go_on = || self.rendezvous.go_on();
        let windows = self.stage.windows(WINDOW);
        let mut published: [Option<Event>; SLOTS] = Default::default();
        let mut taken: [Option<Event>; SLOTS] = Default::default();
        let publish = |window: usize, published: &mut [Option<Event>; SLOTS]| -> Result<()> {
            if window < windows {
                self.publish(window)?;
                published[window % SLOTS] = Some(d2h.mark()?);
            }
            Ok(())
        };
        (0..AHEAD).try_for_each(|window| publish(window, &mut published))?;
        self.copy_own()?;
        for window in 0..windows {
            for mark in [published[window % SLOTS].take(), taken[(window + AHEAD) % SLOTS].take()] {
                mark.map_or(Ok(()), |mark| mark.wait(&go_on))?;
            }
            self.rendezvous.barrier()?;
            publish(window + AHEAD, &mut published)?;
            self.work(window)?;
            taken[window % SLOTS] = Some(h2d.mark()?);
        }
        h2d.wait(&go_on)?;
        compute.wait(&go_on)?;
        // No rank reads a slot any more.
        self.rendezvous.barrier()
    }

    fn source(&self) -> u64 {
        if self.stage.from_output {
            self.collective.output.address()
        } else {
            self.collective.input.address()
        }
    }

    fn slot(&self, rank: usize, window: usize) -> u64 {
        self.staging.slots[rank] + (window % SLOTS * WINDOW) as u64
    }

    fn publish(&self, window: usize) -> Result<()> {
        let bytes = self.stage.published_window(self.me, WINDOW, window);
        let from = self.source() + bytes.start as u64;
        // SAFETY: the bytes belong to this rank and are lent for the call; `run` ensures that the slot is free.
        unsafe { self.staging.d2h.copy(self.slot(self.me, window), from, bytes.len()) }
    }

    /// Copies what comes from this rank itself.
    fn copy_own(&self) -> Result<()> {
        for job in &self.stage.jobs {
            if let DeviceJob::Copy { worker, from, to, bytes } = *job
                && worker == self.me
                && from.rank == self.me
            {
                let (from, to) =
                    (self.source() + from.offset as u64, self.collective.output.address() + to.offset as u64);
                // SAFETY: both belong to this rank, are lent for the call, and do not overlap.
                unsafe { self.staging.h2d.copy(to, from, bytes)? };
            }
        }
        Ok(())
    }

    /// Copies or folds what the ranks have published in this window.
    fn work(&self, window: usize) -> Result<()> {
        let output = self.collective.output.address();
        for job in self.stage.jobs.iter().filter(|job| job.worker() == self.me) {
            match job {
                DeviceJob::Copy { from, to, bytes, .. } if from.rank != self.me => {
                    let published = self.stage.published_window(from.rank, WINDOW, window);
                    let Some(common) = common(&published, &(from.offset..from.offset + bytes)) else {
                        continue;
                    };
                    let at = self.slot(from.rank, window) + (common.start - published.start) as u64;
                    let to = output + (to.offset + common.start - from.offset) as u64;
                    // SAFETY: the other rank has published these bytes and waits before it publishes others; the output is
                    // lent.
                    unsafe { self.staging.h2d.copy(to, at, common.len())? };
                }
                DeviceJob::Copy { .. } => {}
                DeviceJob::Fold { offset, bytes, to, .. } => {
                    let all = window * WINDOW..(window + 1) * WINDOW;
                    let Some(common) = common(&all, &(*offset..offset + bytes)) else { continue };
                    for to in to {
                        let target = output + (to.offset + common.start - offset) as u64;
                        self.fold(window, common.clone(), target)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Folds bytes that all ranks have published in this window.
    fn fold(&self, window: usize, bytes: std::ops::Range<usize>, target: u64) -> Result<()> {
        let Staging { h2d, compute, scratch, .. } = self.staging;
        let within = (bytes.start - window * WINDOW) as u64;
        // The kernel before the last has used this scratch memory; the last one uses the other.
        if let Some(mark) = &self.folded.borrow()[window % SCRATCHES] {
            h2d.follow_mark(mark)?;
        }
        let mut room = scratch[window % SCRATCHES].address();
        let mut from = Vec::with_capacity(self.staging.slots.len());
        for rank in 0..self.staging.slots.len() {
            if rank == self.me {
                from.push(self.source() + bytes.start as u64);
                continue;
            }
            // SAFETY: the other rank has published these bytes and waits before it publishes others; the scratch memory is
            // this rank's.
            unsafe { h2d.copy(room + within, self.slot(rank, window) + within, bytes.len())? };
            from.push(room + within);
            room += WINDOW as u64;
        }
        compute.follow(h2d)?;
        let kind = self.collective.spec.reduction();
        let count = bytes.len() / self.collective.spec.dtype.size();
        // SAFETY: every source has `count` elements; the target belongs to this rank, is lent for the call, and may be its
        // own source.
        unsafe { kernels::fold((self.device, compute), kind, count, &from, &[target])? };
        self.folded.borrow_mut()[window % SCRATCHES] = Some(compute.mark()?);
        Ok(())
    }
}
