//! send and recv: point-to-point messages. Messages with the same tag between two members arrive in order.

use super::Raw;
use super::buffer::{Buffer, BufferMut};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::{
    Call, CancelOnDrop, Incoming, MatchKey, Outgoing, POLL_INTERVAL, Signature, Ticket, Verb,
};
use crate::world::{Group, Pending, pending};

impl Group {
    /// Sends values to a member. Returns when the buffer may be overwritten: at once for short messages, when the other side
    /// receives them for long ones.
    pub fn send<T: Element>(&self, values: &[T], to: usize, tag: u32) -> Result<()> {
        self.raw().send(bytemuck::cast_slice::<T, u8>(values), T::DTYPE, to, tag)
    }

    /// Receives values from a member; type and length must equal the sender's.
    pub fn recv<T: Element>(&self, values: &mut [T], from: usize, tag: u32) -> Result<()> {
        self.raw().recv(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, from, tag)
    }
}

impl Raw<'_> {
    /// Sends bytes to a member. Returns when they may be overwritten: at once for short messages, when the other side has
    /// received them for long ones.
    pub fn send<'b>(&self, values: impl Into<Buffer<'b>>, dtype: DType, to: usize, tag: u32) -> Result<()> {
        let bytes = match values.into() {
            Buffer::Host(bytes) => bytes,
            Buffer::Device(span) => return self.send_from_device(span, dtype, to, tag),
        };
        let match_key = self.message_key(Verb::SEND, bytes.len(), dtype, to, tag)?;
        self.group.message_call(Verb::SEND, |call| {
            self.group.exchange(call, &match_key, vec![Outgoing { to, bytes }], Vec::new())
        })
    }

    /// Receives bytes from a member; type and length must equal the sender's.
    pub fn recv<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<()> {
        let bytes = match values.into() {
            BufferMut::Host(bytes) => bytes,
            BufferMut::Device(span) => return self.recv_to_device(span, dtype, from, tag),
        };
        let match_key = self.message_key(Verb::RECV, bytes.len(), dtype, from, tag)?;
        self.group.message_call(Verb::RECV, |call| {
            self.group.exchange(call, &match_key, Vec::new(), vec![Incoming { from, bytes }])
        })
    }

    /// Sends in the background, and returns the buffer when it may be overwritten.
    pub fn start_send<B>(&self, buffer: B, dtype: DType, to: usize, tag: u32) -> Result<Pending<B>>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let buffer = Box::new(buffer);
        let bytes = (*buffer).as_ref();
        let match_key = self.message_key(Verb::SEND, bytes.len(), dtype, to, tag)?;
        let to = self.group.members()[to];
        self.group.check_peer(Verb::SEND, to)?;
        // SAFETY: the buffer is boxed and moves into the work below, which keeps it until the ticket is cancelled.
        let ticket = unsafe { self.begin(Verb::SEND, &match_key, &[Outgoing { to, bytes }], &mut [])? };
        Ok(self.finish(Verb::SEND, buffer, ticket))
    }

    /// Receives in the background, and returns the buffer when it is filled.
    pub fn start_recv<B>(&self, buffer: B, dtype: DType, from: usize, tag: u32) -> Result<Pending<B>>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let mut buffer = Box::new(buffer);
        let bytes = (*buffer).as_mut();
        let match_key = self.message_key(Verb::RECV, bytes.len(), dtype, from, tag)?;
        let from = self.group.members()[from];
        self.group.check_peer(Verb::RECV, from)?;
        // SAFETY: as in `start_send`.
        let ticket = unsafe { self.begin(Verb::RECV, &match_key, &[], &mut [Incoming { from, bytes }])? };
        Ok(self.finish(Verb::RECV, buffer, ticket))
    }

    /// Receives the next message with this tag from any member, and returns its sender; the length must equal the
    /// sender's. No other receive with this tag may run on the group at the same time.
    ///
    /// ```
    /// use unisono::{DType, testing};
    /// testing::spawn(3, |group| match group.rank() {
    ///     0 => {
    ///         let mut sender = [0];
    ///         let from = group.raw().recv_any(&mut sender, DType::U8, 7).unwrap();
    ///         let other = group.raw().recv_any(&mut sender, DType::U8, 7).unwrap();
    ///         assert_eq!((from + other, usize::from(sender[0])), (3, other));
    ///     }
    ///     rank => group.send(&[rank as u8], 0, 7).unwrap(),
    /// });
    /// ```
    pub fn recv_any(&self, values: &mut [u8], dtype: DType, tag: u32) -> Result<usize> {
        let match_key = self.message_key(Verb::RECV, values.len(), dtype, self.group.rank(), tag)?;
        self.group.message_call(Verb::RECV, |call| {
            let (from, bytes) = self.next_message(call, &match_key)?;
            let from = self.group.members().iter().position(|&member| member == from).unwrap_or(from);
            if bytes.len() != values.len() {
                let expected = format!("a message of {} bytes", values.len());
                let received = format!("{} bytes from rank {from}", bytes.len());
                return Err(self.reject(Verb::RECV, expected, received, "send and receive equal sizes"));
            }
            values.copy_from_slice(&bytes);
            Ok(from)
        })
    }

    /// Receives from any member in the background, and returns the buffer and the sender.
    pub fn start_recv_any<B>(&self, mut buffer: B, dtype: DType, tag: u32) -> Pending<(B, usize)>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        self.group.start_unordered(move |group| {
            let from = group.raw().recv_any(buffer.as_mut(), dtype, tag)?;
            Ok((buffer, from))
        })
    }

    /// The next message of a match key and the world rank of its sender.
    fn next_message(&self, call: &Call, match_key: &MatchKey) -> Result<(usize, Vec<u8>)> {
        let transport = self.group.transport();
        loop {
            let limit = POLL_INTERVAL.min(call.remaining());
            if let Some(found) = transport.receive_next(call, match_key.context, match_key.tag, limit)? {
                return Ok(found);
            }
            self.group.check_usable(Verb::RECV.name())?;
            call.check_interrupt()?;
            let others = || self.group.members().iter().copied().filter(|&member| member != call.rank);
            let lost: Vec<_> = others().filter_map(|member| transport.lost(member)).collect();
            // A single lost rank may not be the one that was to send.
            if !lost.is_empty() && lost.len() == others().count() {
                return Err(call.lost(lost));
            }
            if call.remaining().is_zero() {
                return Err(call.timeout(transport.missing(&others().collect::<Vec<_>>())));
            }
        }
    }

    /// # Safety
    /// The buffers stay valid and untouched until the ticket is cancelled.
    unsafe fn begin(
        &self,
        verb: Verb,
        match_key: &MatchKey,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Result<Ticket> {
        self.group.check_usable(verb.name())?;
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.group.transport().begin(match_key, sends, receives) })
    }

    fn finish<B: Send + 'static>(&self, verb: Verb, buffer: Box<B>, ticket: Ticket) -> Pending<B> {
        let transport = self.group.transport().clone();
        let waited = transport.clone();
        // The buffer must outlive the ticket, whatever happens: tuple fields are dropped in this order.
        let guarded = (CancelOnDrop(move || transport.cancel(ticket)), buffer);
        // Short messages, and those that have arrived, need no thread.
        let outcome = self.group.message_call(verb, |call| waited.poll(call, &ticket));
        if !matches!(outcome, Ok(false)) {
            let (promise, result) = pending();
            let (cancel, buffer) = guarded;
            drop(cancel);
            promise.fulfil(|| outcome.map(|_| *buffer));
            return result;
        }
        self.group.start_unordered(move |group| {
            let (cancel, buffer) = guarded;
            let outcome = group.message_call(verb, |call| waited.complete(call, &ticket));
            drop(cancel);
            outcome.map(|()| *buffer)
        })
    }

    pub(super) fn message_key(
        &self,
        verb: Verb,
        bytes: usize,
        dtype: DType,
        peer: usize,
        tag: u32,
    ) -> Result<MatchKey> {
        let count = self.elements(verb, bytes, dtype)? as u64;
        if peer >= self.group.size() {
            let expected = format!("a rank below {}", self.group.size());
            return Err(self.reject(verb, expected, peer.to_string(), "ranks count from 0"));
        }
        if tag >= MatchKey::TAGS {
            return Err(self.reject(
                verb,
                format!("a tag below {}", MatchKey::TAGS),
                tag.to_string(),
                "use a smaller one",
            ));
        }
        // One signature for both sides: they are compared.
        let signature = Signature::new(Verb::SEND, 0).of(dtype, count);
        Ok(MatchKey { context: self.group.context(), tag, signature })
    }
}
