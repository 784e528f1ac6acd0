//! send and recv: point-to-point messages. Messages with the same tag between two members arrive in order.

use super::Raw;
use super::buffer::{Buffer, BufferMut};
use crate::error::Result;
use crate::memory::{DType, Element};
use crate::transport::{CancelOnDrop, Incoming, Outgoing, Signature, Slot, Ticket, Verb};
use crate::world::{Group, Pending};

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
        let slot = self.message_slot(Verb::Send, bytes.len(), dtype, to, tag)?;
        self.group.message_call(Verb::Send, |call| {
            self.group.exchange(call, &slot, vec![Outgoing { to, bytes }], Vec::new())
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
        let slot = self.message_slot(Verb::Recv, bytes.len(), dtype, from, tag)?;
        self.group.message_call(Verb::Recv, |call| {
            self.group.exchange(call, &slot, Vec::new(), vec![Incoming { from, bytes }])
        })
    }

    /// Sends in the background, and returns the buffer when it may be overwritten.
    pub fn start_send<B>(&self, buffer: B, dtype: DType, to: usize, tag: u32) -> Result<Pending<B>>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let buffer = Box::new(buffer);
        let bytes = (*buffer).as_ref();
        let slot = self.message_slot(Verb::Send, bytes.len(), dtype, to, tag)?;
        let to = self.group.members()[to];
        self.group.check_peer(Verb::Send, to)?;
        // SAFETY: the buffer is boxed and moves into the work below, which keeps it until the ticket is cancelled.
        let ticket = unsafe { self.begin(Verb::Send, &slot, &[Outgoing { to, bytes }], &mut [])? };
        Ok(self.finish(Verb::Send, buffer, ticket))
    }

    /// Receives in the background, and returns the buffer when it is filled.
    pub fn start_recv<B>(&self, buffer: B, dtype: DType, from: usize, tag: u32) -> Result<Pending<B>>
    where
        B: AsMut<[u8]> + Send + 'static,
    {
        let mut buffer = Box::new(buffer);
        let bytes = (*buffer).as_mut();
        let slot = self.message_slot(Verb::Recv, bytes.len(), dtype, from, tag)?;
        let from = self.group.members()[from];
        self.group.check_peer(Verb::Recv, from)?;
        // SAFETY: as in `start_send`.
        let ticket = unsafe { self.begin(Verb::Recv, &slot, &[], &mut [Incoming { from, bytes }])? };
        Ok(self.finish(Verb::Recv, buffer, ticket))
    }

    /// # Safety
    /// The buffers stay valid and untouched until the ticket is cancelled.
    unsafe fn begin(
        &self,
        verb: Verb,
        slot: &Slot,
        sends: &[Outgoing],
        receives: &mut [Incoming],
    ) -> Result<Ticket> {
        self.group.check_usable(verb.name())?;
        // SAFETY: passed on from the caller.
        Ok(unsafe { self.group.transport().begin(slot, sends, receives) })
    }

    fn finish<B: Send + 'static>(&self, verb: Verb, buffer: Box<B>, ticket: Ticket) -> Pending<B> {
        let transport = self.group.transport().clone();
        let waited = transport.clone();
        // The buffer must outlive the ticket, whatever happens: tuple fields are dropped in this order.
        let guarded = (CancelOnDrop(move || transport.cancel(ticket)), buffer);
        self.group.start_unordered(move |group| {
            let (cancel, buffer) = guarded;
            let outcome = group.message_call(verb, |call| waited.complete(call, &ticket));
            drop(cancel);
            outcome.map(|()| *buffer)
        })
    }

    pub(super) fn message_slot(
        &self,
        verb: Verb,
        bytes: usize,
        dtype: DType,
        peer: usize,
        tag: u32,
    ) -> Result<Slot> {
        let count = self.elements(verb, bytes, dtype)? as u64;
        if peer >= self.group.size() {
            let expected = format!("a rank below {}", self.group.size());
            return Err(self.reject(verb, expected, peer.to_string(), "ranks count from 0"));
        }
        if tag >= Slot::TAGS {
            return Err(self.reject(
                verb,
                format!("a tag below {}", Slot::TAGS),
                tag.to_string(),
                "use a smaller one",
            ));
        }
        // One signature for both sides: they are compared.
        let signature = Signature::new(Verb::Send, 0).of(dtype, count);
        Ok(Slot { context: self.group.context(), tag, signature })
    }
}
