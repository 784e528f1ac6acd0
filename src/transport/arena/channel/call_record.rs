//! What a member says of its call before it shows any data.

use std::cell::UnsafeCell;

use crate::transport::Signature;

/// A call, and where its data is.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CallRecord {
    pub signature: Signature,
    /// The data's offset in the arena; [`PRIVATE`] when it is not there and comes through the slots.
    offset: u64,
    /// Bytes of the largest part for another member, in calls that split their data.
    pub largest: u64,
}

const PRIVATE: u64 = u64::MAX;

impl CallRecord {
    pub fn new(signature: Signature) -> CallRecord {
        CallRecord { signature, offset: PRIVATE, largest: 0 }
    }

    /// Says that the others may read the data in the arena, at this offset.
    pub fn at(mut self, offset: Option<usize>) -> CallRecord {
        self.offset = offset.map_or(PRIVATE, |offset| offset as u64);
        self
    }

    pub fn largest(mut self, bytes: usize) -> CallRecord {
        self.largest = bytes as u64;
        self
    }

    pub fn offset(&self) -> Option<usize> {
        (self.offset != PRIVATE).then_some(self.offset as usize)
    }
}

/// A record in shared memory.
#[repr(transparent)]
pub(super) struct RecordCell(UnsafeCell<CallRecord>);

impl RecordCell {
    /// Writes the record. Its member does so before it publishes the step, when nobody reads this notice.
    pub fn store(&self, record: CallRecord) {
        // SAFETY: the step protocol makes the member the only one to touch this notice now.
        unsafe { self.0.get().write_volatile(record) }
    }

    /// Reads the record of a published step, which stays until the reader publishes the next one.
    pub fn read(&self) -> CallRecord {
        // SAFETY: the step protocol keeps the member from writing now; any bytes are a valid record.
        unsafe { self.0.get().read_volatile() }
    }
}
