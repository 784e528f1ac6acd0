//! all_reduce over MPI: a direct reduce-scatter and all-gather, pipelined in pieces, folded in rank order.
//!
//! Each rank owns a part of the elements, collects that part from every member, folds it in rank order (so all ranks
//! get the same bits as over any other transport) and sends the result to every member. Pieces of the all-gather are in
//! flight while the next pieces of the reduce-scatter are folded. Each byte is sent twice, which is optimal.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::PoisonError;

use super::MpiTransport;
use super::wire::EAGER_LIMIT;
use crate::error::Result;
use crate::memory::{DType, ReduceOp, reduce};
use crate::transport::{Call, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket};

/// Bytes that all other members together send for one piece: large, because each piece costs an RTS/CTS round trip, and
/// bounded, because that much scratch memory is held.
const PIECE_BYTES: usize = 16 << 20;
/// The longest buffer, in bytes, that is exchanged in one direct step: with our header and MPI's it still leaves
/// eagerly on every MPI.
const DIRECT_LIMIT: usize = 3 << 10;
/// Pieces of the reduce-scatter in flight at once.
const PIPELINE_DEPTH: usize = 2;

/// One all_reduce. The buffer is a pointer, because pieces of it are sent, received and folded concurrently.
struct ReduceTask<'a> {
    members: &'a [usize],
    /// The caller's index in `members`.
    own: usize,
    start: *mut u8,
    count: usize,
    dtype: DType,
    operation: ReduceOp,
    /// Elements per piece.
    piece: usize,
    scratch: *mut u8,
}

impl MpiTransport {
    /// Reduces `bytes` over all `members` (world ranks, in group order) and leaves the result on each of them.
    pub fn all_reduce_pipelined(
        &self,
        call: &Call,
        match_key: &MatchKey,
        members: &[usize],
        bytes: &mut [u8],
        (dtype, operation): (DType, ReduceOp),
    ) -> Result<()> {
        let Some(own) = members.iter().position(|&member| member == self.rank) else { return Ok(()) };
        let others = members.len() - 1;
        if bytes.is_empty() {
            return Ok(());
        }
        if others == 0 {
            let own = bytes.as_mut_ptr();
            // A logical operation makes a truth value of each element even of a single array.
            // SAFETY: the destination is the only source, and as long as the count says.
            unsafe {
                reduce::combine(dtype, operation, bytes.len() / dtype.size(), &[own.cast_const()], &[own]);
            }
            return Ok(());
        }
        // Small buffers: every member sends everything to every other, one step instead of two.
        let small = bytes.len() <= DIRECT_LIMIT && bytes.len() * others <= EAGER_LIMIT;
        let count = bytes.len() / dtype.size();
        let longest_part = count.div_ceil(members.len());
        let piece = if small {
            count
        } else {
            longest_part.min((PIECE_BYTES / others).max(EAGER_LIMIT) / dtype.size())
        };
        let mut scratch =
            self.take_scratch(others * piece * dtype.size() * if small { 1 } else { PIPELINE_DEPTH });
        let (start, scratch_start) = (bytes.as_mut_ptr(), scratch.as_mut_ptr());
        let task = ReduceTask { members, own, start, count, dtype, operation, piece, scratch: scratch_start };
        let mut open = VecDeque::new();
        let outcome = if small {
            self.direct(call, match_key, &task)
        } else {
            self.pipeline(call, match_key, &task, &mut open)
        };
        open.into_iter().for_each(|ticket| self.cancel(ticket));
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        outcome
    }

    fn take_scratch(&self, bytes: usize) -> Vec<u8> {
        let reused = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = reused.unwrap_or_default();
        if scratch.len() < bytes {
            scratch = vec![0; bytes];
        }
        scratch
    }

    fn direct(&self, call: &Call, match_key: &MatchKey, task: &ReduceTask) -> Result<()> {
        let all = 0..task.count;
        let sends: Vec<_> = task.others().map(|member| task.outgoing(member, all.clone())).collect();
        let mut receives: Vec<_> = task.others().map(|member| task.incoming(member, 0, all.len())).collect();
        // SAFETY: buffer and scratch outlive this function, which closes the ticket.
        let ticket = unsafe { self.begin(match_key, &sends, &mut receives) };
        let outcome = self.wait(call, &ticket);
        self.cancel(ticket);
        outcome.map(|()| task.fold(0, all))
    }

    fn pipeline(
        &self,
        call: &Call,
        match_key: &MatchKey,
        task: &ReduceTask,
        open: &mut VecDeque<Ticket>,
    ) -> Result<()> {
        let pieces = task.part(0).len().div_ceil(task.piece);
        // Both steps start in the same order on all ranks, so order alone matches their messages.
        let mut all_gathers: VecDeque<Ticket> = VecDeque::new();
        for index in 0..pieces.min(PIPELINE_DEPTH) {
            open.push_back(self.start_reduce_scatter(match_key, task, index));
        }
        let mut outcome = Ok(());
        for index in 0..pieces {
            outcome = open.front().map_or(Ok(()), |ticket| self.wait(call, ticket));
            if outcome.is_err() {
                break;
            }
            open.pop_front();
            task.fold(index % PIPELINE_DEPTH, task.piece_of(task.own, index));
            all_gathers.push_back(self.start_all_gather(match_key, task, index));
            if index + PIPELINE_DEPTH < pieces {
                open.push_back(self.start_reduce_scatter(match_key, task, index + PIPELINE_DEPTH));
            }
        }
        while outcome.is_ok()
            && let Some(ticket) = all_gathers.front()
        {
            outcome = self.wait(call, ticket);
            if outcome.is_ok() {
                all_gathers.pop_front();
            }
        }
        open.append(&mut all_gathers);
        outcome
    }

    /// Sends one piece of every member's part to its owner and collects that piece of this rank's part.
    fn start_reduce_scatter(&self, match_key: &MatchKey, task: &ReduceTask, index: usize) -> Ticket {
        let sends: Vec<_> = task.others().map(|to| task.outgoing(to, task.piece_of(to, index))).collect();
        let length = task.piece_of(task.own, index).len();
        let mut receives: Vec<_> =
            task.others().map(|from| task.incoming(from, index % PIPELINE_DEPTH, length)).collect();
        // SAFETY: buffer and scratch outlive `all_reduce_pipelined`, which closes every ticket; a scratch slot is
        // reused only after its piece was folded, and the pieces being sent are not written to before this ticket
        // completes.
        unsafe { self.begin(match_key, &sends, &mut receives) }
    }

    /// Sends a finished piece of this rank's part to every member and receives theirs in place.
    fn start_all_gather(&self, match_key: &MatchKey, task: &ReduceTask, index: usize) -> Ticket {
        let own = task.piece_of(task.own, index);
        let sends: Vec<_> = task.others().map(|to| task.outgoing(to, own.clone())).collect();
        let mut receives: Vec<_> =
            task.others().map(|from| task.in_place(from, task.piece_of(from, index))).collect();
        // SAFETY: as above; the ranges received into were sent by the reduce-scatter of this piece, which has
        // completed.
        unsafe { self.begin(match_key, &sends, &mut receives) }
    }
}

impl<'a> ReduceTask<'a> {
    fn others(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.members.len()).filter(|member| *member != self.own)
    }

    /// The elements that a member folds; the first parts are the longest.
    fn part(&self, member: usize) -> Range<usize> {
        let (each, more) = (self.count / self.members.len(), self.count % self.members.len());
        let begin = member * each + member.min(more);
        begin..begin + each + usize::from(member < more)
    }

    /// One piece of a member's part; empty past its end.
    fn piece_of(&self, member: usize, index: usize) -> Range<usize> {
        let part = self.part(member);
        let begin = (part.start + index * self.piece).min(part.end);
        begin..(begin + self.piece).min(part.end)
    }

    fn element(&self, index: usize) -> *mut u8 {
        // SAFETY: callers pass indices inside the buffer, or its end.
        unsafe { self.start.add(index * self.dtype.size()) }
    }

    /// The scratch slot for a member's piece in this pipeline stage.
    fn scratch_slot(&self, member: usize, stage: usize) -> *mut u8 {
        let column = member - usize::from(member > self.own);
        let index = stage * (self.members.len() - 1) + column;
        // SAFETY: the scratch has room for one piece of every other member, for each stage.
        unsafe { self.scratch.add(index * self.piece * self.dtype.size()) }
    }

    fn outgoing(&self, to: usize, range: Range<usize>) -> Outgoing<'a> {
        let length = range.len() * self.dtype.size();
        // SAFETY: the range is inside the caller's buffer; it is not written to until the message has been sent.
        let bytes = unsafe { std::slice::from_raw_parts(self.element(range.start), length) };
        Outgoing { to: self.members[to], bytes }
    }

    fn incoming(&self, from: usize, stage: usize, count: usize) -> Incoming<'a> {
        let length = count * self.dtype.size();
        // SAFETY: the scratch slot has room for a piece, and this receive is its only user during this stage.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.scratch_slot(from, stage), length) };
        Incoming { from: self.members[from], bytes }
    }

    fn in_place(&self, from: usize, range: Range<usize>) -> Incoming<'a> {
        let length = range.len() * self.dtype.size();
        // SAFETY: the range is inside the caller's buffer, in a part that only this receive writes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.element(range.start), length) };
        Incoming { from: self.members[from], bytes }
    }

    /// Folds the contributions of all members for `range`, including this rank's own, in rank order and in place.
    fn fold(&self, stage: usize, range: Range<usize>) {
        let own = self.element(range.start);
        let source = |member| if member == self.own { own } else { self.scratch_slot(member, stage) };
        let sources: Vec<*const u8> =
            (0..self.members.len()).map(|member| source(member).cast_const()).collect();
        // SAFETY: every source holds `range.len()` elements; the destination is one of them; messages about this range
        // have completed, and the next ones start after this.
        unsafe { reduce::combine(self.dtype, self.operation, range.len(), &sources, &[own]) };
    }
}
