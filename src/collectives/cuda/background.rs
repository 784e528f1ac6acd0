//! send and recv of device memory in the background, concurrent with all other calls.

use std::sync::Arc;

use super::super::Raw;
use crate::cuda::{Device, Event, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::Verb;
use crate::world::{Group, Pending};

impl Raw<'_> {
    /// Starts a send; `owner` owns the bytes, is kept alive, and is returned when they may be overwritten. Messages with the
    /// same tag that are in flight at the same time may overtake each other: give each its own tag.
    pub fn start_send_from_device<B: Send + 'static>(
        &self,
        owner: B,
        values: Span,
        dtype: DType,
        to: usize,
        tag: u32,
    ) -> Result<Pending<B>> {
        self.message_key(Verb::SEND, values.bytes(), dtype, to, tag)?;
        let ready = self.marks(values)?;
        let work = move |group: &Group| group.raw().after(ready).send(values, dtype, to, tag);
        Ok(self.group.start_unordered(move |group| work(group).map(|()| owner)))
    }

    /// Starts a receive; as [`Raw::start_send_from_device`].
    pub fn start_recv_to_device<B: Send + 'static>(
        &self,
        owner: B,
        values: Span,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<Pending<B>> {
        self.message_key(Verb::RECV, values.bytes(), dtype, from, tag)?;
        let ready = self.marks(values)?;
        let work = move |group: &Group| group.raw().after(ready).recv(values, dtype, from, tag);
        Ok(self.group.start_unordered(move |group| work(group).map(|()| owner)))
    }

    /// The events that memory passed now waits for, which exclude work that its caller orders later.
    fn marks(&self, values: Span) -> Result<Vec<Arc<Event>>> {
        match &self.ready {
            Some(marks) => Ok(marks.clone()),
            None => Ok(vec![Arc::new(Device::get(values.device())?.stream().mark()?)]),
        }
    }
}
