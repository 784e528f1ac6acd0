//! Channels of a modelled machine: a step is a wait and a number of bytes, and no memory is shared.
//!
//! The bytes are those that the protocol makes a member copy or fold if its data is outside the arena.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::slot_writer::SlotWriter;
use super::{Channel, LocalEndpoint, SHARED_CORES};

/// The machine that a counted channel belongs to.
pub(crate) trait CountedSteps: Send + Sync {
    /// Waits until all members have entered the step; this one then copies or folds `bytes` bytes.
    fn step(&self, bytes: usize);
}

impl Channel {
    /// A channel whose calls are only counted.
    pub fn counted(
        unused: &Arc<LocalEndpoint>,
        members: Vec<usize>,
        me: usize,
        steps: Box<dyn CountedSteps>,
    ) -> Channel {
        Channel {
            endpoint: unused.clone(),
            base: 0,
            members,
            me,
            step: AtomicU32::new(0),
            core_each: SHARED_CORES,
            writer: SlotWriter::default(),
            owns_memory: false,
            host_wide: true,
            counted: Some(steps),
        }
    }

    /// Counts [`Channel::share`]; false if this channel is real.
    pub(super) fn count_share(&self, reader: Option<usize>, length: impl Fn(usize) -> usize) -> bool {
        let all: usize = (0..self.size()).map(&length).sum();
        let written = if reader == Some(self.me) { 0 } else { length(self.me) };
        let read = if reader.is_none_or(|reader| reader == self.me) { all } else { 0 };
        self.count(written + read)
    }

    /// Counts [`Channel::parts`]; false if this channel is real.
    pub(super) fn count_parts(
        &self,
        part: impl Fn(usize) -> usize,
        expected: impl Fn(usize) -> usize,
    ) -> bool {
        let written = (0..self.size()).filter(|&member| member != self.me).map(part).sum::<usize>();
        self.count(written + (0..self.size()).map(expected).sum::<usize>())
    }

    /// Counts an all_reduce of a long buffer: a member writes the others' parts, folds its own and copies the others' results.
    pub(super) fn count_all_reduce(&self, bytes: usize) -> bool {
        let part = bytes / self.size();
        self.count((bytes - part) + bytes + (bytes - part))
    }

    /// Counts a step.
    pub(super) fn count(&self, bytes: usize) -> bool {
        self.counted.as_ref().map(|steps| steps.step(bytes)).is_some()
    }
}
