//! Rendezvous transfers: the data of one large message in flight, in chunks, directly from or into the caller's buffer.

use std::collections::VecDeque;
use std::time::Instant;

use super::binding::{MpiRequest, MpiRuntime};
use super::wait::PollBackoff;
use super::wire::{CHUNK, WINDOW};
use crate::error::Result;
use crate::transport::Ticket;
use crate::transport::wait::poll_until;

/// A send whose receiver has answered with a CTS.
pub(super) struct Outbound {
    pub ticket: Ticket,
    pub to: usize,
    pub message: u64,
    pub tag: u16,
    pub start: *const u8,
    pub length: usize,
    /// Bytes passed to MPI.
    pub sent: usize,
    pub chunks: VecDeque<MpiRequest>,
}

impl Outbound {
    /// Makes progress; true when the transfer is complete and the buffer is free.
    pub fn advance(&mut self, mpi: &MpiRuntime) -> Result<bool> {
        while let Some(request) = self.chunks.front_mut() {
            if mpi.test(request)?.is_none() {
                break;
            }
            self.chunks.pop_front();
        }
        while self.chunks.len() < WINDOW && self.sent < self.length {
            let bytes = CHUNK.min(self.length - self.sent);
            // SAFETY: the chunk is inside the caller's buffer, which is valid until the ticket is closed; a ticket is
            // closed only when no chunk is in flight, or MPI is never entered again.
            let request = unsafe { mpi.send(self.start.add(self.sent), bytes, self.to, self.tag)? };
            self.chunks.push_back(request);
            self.sent += bytes;
        }
        Ok(self.sent == self.length && self.chunks.is_empty())
    }
}

/// A receive for which this rank has sent a CTS.
pub(super) struct Inbound {
    /// The exchange that the message belongs to; `None` if it was cancelled and the remaining data is only received to
    /// be discarded.
    pub ticket: Option<Ticket>,
    pub from: usize,
    pub message: u64,
    pub tag: u16,
    pub start: *mut u8,
    /// Bytes to expect; less than the full message if the sender cancelled in mid-transfer.
    pub length: usize,
    pub full_length: usize,
    /// Bytes for which receives were posted.
    pub posted: usize,
    pub received: usize,
    pub chunks: VecDeque<MpiRequest>,
    /// Destination of the data of a cancelled message.
    pub drain: Vec<u8>,
}

impl Inbound {
    /// Makes progress; true when all data has arrived.
    pub fn advance(&mut self, mpi: &MpiRuntime) -> Result<bool> {
        while let Some(request) = self.chunks.front_mut() {
            let Some(end) = mpi.test(request)? else { break };
            self.chunks.pop_front();
            self.received += if end.cancelled { 0 } else { end.bytes };
        }
        let window = if self.ticket.is_some() { WINDOW } else { 1 };
        while self.chunks.len() < window && self.posted < self.length {
            let bytes = CHUNK.min(self.full_length - self.posted);
            let start = match self.ticket {
                // SAFETY: the chunk is inside the caller's buffer.
                Some(_) => unsafe { self.start.add(self.posted) },
                None => self.drain.as_mut_ptr(),
            };
            // SAFETY: the caller's buffer is valid until the ticket is closed, and `release` runs before that; the
            // drain belongs to this transfer, has room for a chunk, and is used by one receive at a time.
            let request = unsafe { mpi.receive(start, bytes, self.from, self.tag)? };
            self.chunks.push_back(request);
            self.posted += bytes;
        }
        // The sender cancelled: the receives posted beyond what it sent never match.
        if self.received >= self.length && self.ticket.is_none() {
            for request in &mut self.chunks {
                mpi.cancel(request)?;
            }
        }
        Ok(self.received >= self.length && self.chunks.is_empty())
    }

    /// Releases the caller's buffer; the rest of the message will go to the drain. False if MPI still uses the buffer
    /// at `until`: then MPI must never be entered again.
    pub fn release(&mut self, mpi: &MpiRuntime, until: Instant) -> Result<bool> {
        // Last chunk first: data sent in the meantime then still matches the receive it is meant for.
        while let Some(request) = self.chunks.back_mut() {
            mpi.cancel(request)?;
            let Some(end) = poll_until(until, PollBackoff::new(false), || mpi.test(request))? else {
                return Ok(false);
            };
            self.chunks.pop_back();
            self.received += if end.cancelled { 0 } else { end.bytes };
        }
        self.ticket = None;
        self.posted = self.received;
        self.drain = vec![0; CHUNK.min(self.full_length - self.received)];
        Ok(true)
    }
}
