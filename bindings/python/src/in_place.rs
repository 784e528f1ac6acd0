//! Calls that read or write the caller's own array: each returns a job for this thread or the background.

use unisono::{BufferMut, DType, Group, Raw, Result};

use crate::any_array::{AnyArray, raw_on};
use crate::array::View;
use crate::call::CallOutcome;
use crate::pending::Running;

/// A verb that works in place on one array.
pub(crate) fn in_place(
    mut x: AnyArray,
    verb: impl Fn(&Raw, BufferMut, DType) -> Result<()> + Send + 'static,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| {
        let (raw, dtype) = (raw_on(group, [x.on_device()]), x.dtype());
        verb(&raw, x.buffer_mut(), dtype).map(|()| CallOutcome::Nothing)
    }
}

pub(crate) fn send(
    x: AnyArray,
    to: usize,
    tag: u32,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| {
        let raw = raw_on(group, [x.on_device()]);
        raw.send(x.buffer(), x.dtype(), to, tag).map(|()| CallOutcome::Nothing)
    }
}

/// Starts to send; the array is kept alive until the message is complete.
pub(crate) fn start_send(group: &Group, x: AnyArray, to: usize, tag: u32) -> Result<Box<dyn Running>> {
    let (raw, dtype) = (raw_on(group, [x.on_device()]), x.dtype());
    Ok(match x {
        AnyArray::Host(x) => Box::new(raw.start_send(x, dtype, to, tag)?),
        AnyArray::Cuda(x) => {
            let span = x.span;
            Box::new(raw.start_send_from_device(x, span, dtype, to, tag)?)
        }
    })
}

/// Starts to receive; as `start_send`.
pub(crate) fn start_recv(group: &Group, x: AnyArray, from: usize, tag: u32) -> Result<Box<dyn Running>> {
    let (raw, dtype) = (raw_on(group, [x.on_device()]), x.dtype());
    Ok(match x {
        AnyArray::Host(x) => Box::new(raw.start_recv(x, dtype, from, tag)?),
        AnyArray::Cuda(x) => {
            let span = x.span;
            Box::new(raw.start_recv_to_device(x, span, dtype, from, tag)?)
        }
    })
}

/// Starts to receive from any rank.
pub(crate) fn start_recv_any(group: &Group, x: View, tag: u32) -> Result<Box<dyn Running>> {
    let dtype = x.dtype;
    Ok(Box::new(group.raw().start_recv_any(x, dtype, tag)))
}
