//! A member's record of its call, published before any data so that all members can compare their calls.

use std::cell::UnsafeCell;

use crate::transport::Signature;

/// A call's signature and the location of its data.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct CallRecord {
    pub signature: Signature,
    /// Arena offset of the data; [`PRIVATE`] if the data is outside the arena and comes through the slots.
    offset: u64,
    /// Bytes of the largest part for another member, in calls that split their data.
    pub largest: u64,
}

const PRIVATE: u64 = u64::MAX;

impl CallRecord {
    pub fn new(signature: Signature) -> CallRecord {
        CallRecord { signature, offset: PRIVATE, largest: 0 }
    }

    /// Declares that the other members may read the data in the arena at this offset.
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

/// A call record in shared memory, in a cache line of its own: other members fetch it with one miss.
#[repr(C, align(64))]
pub(super) struct RecordCell(UnsafeCell<CallRecord>);

impl RecordCell {
    /// Writes the record. The member does so before it publishes the step, while no other member reads this cell.
    pub fn store(&self, record: CallRecord) {
        // SAFETY: by the step protocol the member has exclusive access to this cell now.
        unsafe { self.0.get().write_volatile(record) }
    }

    /// Reads the record of a published step. It is stable until the reader publishes the next step.
    pub fn read(&self) -> CallRecord {
        // SAFETY: by the step protocol the member does not write now; any bytes are a valid record.
        unsafe { self.0.get().read_volatile() }
    }
}
