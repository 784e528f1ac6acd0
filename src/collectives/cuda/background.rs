//! send and recv of device memory in the background, beside all other calls.

use std::sync::Arc;

use super::Cuda;
use crate::cuda::{Device, Event, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::Verb;
use crate::world::{Group, Pending};

impl Cuda<'_> {
    /// Begins to send; whoever lends the bytes is kept and given back when they may be overwritten. Messages of one tag that
    /// are under way at once may overtake each other: give each a tag of its own.
    pub fn start_send<B: Send + 'static>(
        &self,
        owner: B,
        values: Span,
        dtype: DType,
        to: usize,
        tag: u32,
    ) -> Result<Pending<B>> {
        self.raw.message_slot(Verb::Send, values.bytes(), dtype, to, tag)?;
        let ready = self.marks(values)?;
        let work = move |group: &Group| group.cuda().after(ready).send(values, dtype, to, tag);
        Ok(self.raw.group.start_beside(move |group| work(group).map(|()| owner)))
    }

    /// Begins to receive; as [`Cuda::start_send`].
    pub fn start_recv<B: Send + 'static>(
        &self,
        owner: B,
        values: Span,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<Pending<B>> {
        self.raw.message_slot(Verb::Recv, values.bytes(), dtype, from, tag)?;
        let ready = self.marks(values)?;
        let work = move |group: &Group| group.cuda().after(ready).recv(values, dtype, from, tag);
        Ok(self.raw.group.start_beside(move |group| work(group).map(|()| owner)))
    }

    /// What memory waits for that is lent now: nothing that its caller orders later.
    fn marks(&self, values: Span) -> Result<Vec<Arc<Event>>> {
        match &self.ready {
            Some(marks) => Ok(marks.clone()),
            None => Ok(vec![Arc::new(Device::get(values.device())?.stream().mark()?)]),
        }
    }
}
