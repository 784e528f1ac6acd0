//! Dispatches each collective to its implementation for host memory or for device memory.

use std::sync::Arc;

use unisono::cuda::{Event, Stream};
use unisono::{Cuda, DType, Error, Group, ReduceOp, Result};

use crate::any_array::{AnyArray, CudaArray, mixed};
use crate::pending::Running;
use crate::result_array::ResultArray;

/// The error for a result in a different memory space than its input.
fn wrong_memory(operation: &str) -> Error {
    mixed(operation, "a result in another place than its input".into())
}

/// The collectives on device memory, ordered after the events of these arrays.
fn on<'a, 'b>(group: &'a Group, arrays: impl IntoIterator<Item = &'b CudaArray>) -> Cuda<'a> {
    group.cuda().after(arrays.into_iter().filter_map(|array| array.ready.clone()))
}

pub(crate) fn broadcast(group: &Group, x: &mut AnyArray, root: usize) -> Result<()> {
    match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            group.raw().broadcast(x.bytes_mut(), dtype, root)
        }
        AnyArray::Cuda(x) => on(group, [&*x]).broadcast(x.span, x.dtype, root),
    }
}

pub(crate) fn all_reduce(group: &Group, x: &mut AnyArray, op: ReduceOp) -> Result<()> {
    match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            group.raw().all_reduce(x.bytes_mut(), dtype, op)
        }
        AnyArray::Cuda(x) => on(group, [&*x]).all_reduce(x.span, x.dtype, op),
    }
}

pub(crate) fn reduce(group: &Group, x: &mut AnyArray, op: ReduceOp, root: usize) -> Result<()> {
    match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            group.raw().reduce(x.bytes_mut(), dtype, op, root)
        }
        AnyArray::Cuda(x) => on(group, [&*x]).reduce(x.span, x.dtype, op, root),
    }
}

pub(crate) fn reduce_to(
    group: &Group,
    x: &AnyArray,
    result: Option<&mut ResultArray>,
    op: ReduceOp,
    root: usize,
) -> Result<()> {
    match (x, result) {
        (AnyArray::Host(x), None) => group.raw().reduce_to(x.bytes(), None, x.dtype, op, root),
        (AnyArray::Host(x), Some(ResultArray::Host(to))) => {
            group.raw().reduce_to(x.bytes(), Some(to.bytes_mut()), x.dtype, op, root)
        }
        (AnyArray::Cuda(x), None) => on(group, [x]).reduce_to(x.span, None, x.dtype, op, root),
        (AnyArray::Cuda(x), Some(ResultArray::Cuda { memory, .. })) => {
            on(group, [x, &*memory]).reduce_to(x.span, Some(memory.span), x.dtype, op, root)
        }
        _ => Err(wrong_memory("reduce")),
    }
}

pub(crate) fn all_gather(
    group: &Group,
    x: &AnyArray,
    result: &mut ResultArray,
    counts: &[usize],
) -> Result<()> {
    match (x, result) {
        (AnyArray::Host(x), ResultArray::Host(to)) => {
            group.raw().all_gather(x.bytes(), to.bytes_mut(), counts, x.dtype)
        }
        (AnyArray::Cuda(x), ResultArray::Cuda { memory, .. }) => {
            on(group, [x, &*memory]).all_gather(x.span, memory.span, counts, x.dtype)
        }
        _ => Err(wrong_memory("all_gather")),
    }
}

pub(crate) fn gather(
    group: &Group,
    x: &AnyArray,
    result: Option<&mut ResultArray>,
    counts: &[usize],
    root: usize,
) -> Result<()> {
    match (x, result) {
        (AnyArray::Host(x), None) => group.raw().gather(x.bytes(), None, counts, x.dtype, root),
        (AnyArray::Host(x), Some(ResultArray::Host(to))) => {
            group.raw().gather(x.bytes(), Some(to.bytes_mut()), counts, x.dtype, root)
        }
        (AnyArray::Cuda(x), None) => on(group, [x]).gather(x.span, None, counts, x.dtype, root),
        (AnyArray::Cuda(x), Some(ResultArray::Cuda { memory, .. })) => {
            on(group, [x, &*memory]).gather(x.span, Some(memory.span), counts, x.dtype, root)
        }
        _ => Err(wrong_memory("gather")),
    }
}

pub(crate) fn scatter(
    group: &Group,
    x: Option<&AnyArray>,
    result: &mut ResultArray,
    counts: &[usize],
    dtype: DType,
    root: usize,
) -> Result<()> {
    match (x, result) {
        (None, ResultArray::Host(to)) => group.raw().scatter(None, counts, to.bytes_mut(), dtype, root),
        (Some(AnyArray::Host(x)), ResultArray::Host(to)) => {
            group.raw().scatter(Some(x.bytes()), counts, to.bytes_mut(), dtype, root)
        }
        (None, ResultArray::Cuda { memory, .. }) => {
            on(group, [&*memory]).scatter(None, counts, memory.span, dtype, root)
        }
        (Some(AnyArray::Cuda(x)), ResultArray::Cuda { memory, .. }) => {
            on(group, [x, &*memory]).scatter(Some(x.span), counts, memory.span, dtype, root)
        }
        _ => Err(wrong_memory("scatter")),
    }
}

pub(crate) fn reduce_scatter(
    group: &Group,
    x: &AnyArray,
    result: &mut ResultArray,
    counts: &[usize],
    op: ReduceOp,
) -> Result<()> {
    match (x, result) {
        (AnyArray::Host(x), ResultArray::Host(to)) => {
            group.raw().reduce_scatter(x.bytes(), to.bytes_mut(), counts, x.dtype, op)
        }
        (AnyArray::Cuda(x), ResultArray::Cuda { memory, .. }) => {
            on(group, [x, &*memory]).reduce_scatter(x.span, memory.span, counts, x.dtype, op)
        }
        _ => Err(wrong_memory("reduce_scatter")),
    }
}

pub(crate) fn all_to_all(
    group: &Group,
    x: &AnyArray,
    result: &mut ResultArray,
    sent: &[usize],
    received: &[usize],
) -> Result<()> {
    match (x, result) {
        (AnyArray::Host(x), ResultArray::Host(to)) => {
            group.raw().all_to_all(x.bytes(), sent, to.bytes_mut(), received, x.dtype)
        }
        (AnyArray::Cuda(x), ResultArray::Cuda { memory, .. }) => {
            on(group, [x, &*memory]).all_to_all(x.span, sent, memory.span, received, x.dtype)
        }
        _ => Err(wrong_memory("all_to_all")),
    }
}

/// As `all_to_all`, with one array per rank, which are concatenated first.
pub(crate) fn all_to_all_varied(
    group: &Group,
    parts: &[AnyArray],
    result: &mut ResultArray,
    sent: &[usize],
    received: &[usize],
) -> Result<()> {
    match result {
        ResultArray::Host(to) => {
            let bytes = parts.iter().map(|part| match part {
                AnyArray::Host(view) => Ok(view.bytes()),
                AnyArray::Cuda(_) => Err(wrong_memory("all_to_all")),
            });
            let input = bytes.collect::<Result<Vec<_>>>()?.concat();
            group.raw().all_to_all(&input, sent, to.bytes_mut(), received, parts[0].dtype())
        }
        ResultArray::Cuda { memory, .. } => {
            // Until the collective itself starts, a failure here must still count as the call.
            let failed = |_: &Error| group.skip_call();
            let stream = Stream::new(memory.factory.device()).inspect_err(failed)?;
            let joined = memory.factory.make(memory.dtype, &[sent.iter().sum()], "all_to_all");
            let (_array, joined) = joined.inspect_err(failed)?;
            // On failure, wait until the device no longer uses the concatenated array before its library may free it.
            let let_go = |_: &Error| drop(stream.synchronize());
            let ready = join(&stream, parts, &joined).inspect_err(let_go).inspect_err(failed)?;
            let marks = memory.ready.clone().into_iter().chain([ready]);
            let verbs = group.cuda().after(marks);
            verbs.all_to_all(joined.span, sent, memory.span, received, memory.dtype).inspect_err(let_go)
        }
    }
}

/// Concatenates device arrays; the returned event follows the copies.
fn join(stream: &Stream, parts: &[AnyArray], joined: &CudaArray) -> Result<Arc<Event>> {
    let mut address = joined.span.address();
    joined.ready.iter().try_for_each(|ready| stream.follow_mark(ready))?;
    for part in parts {
        let AnyArray::Cuda(part) = part else { return Err(wrong_memory("all_to_all")) };
        part.ready.iter().try_for_each(|ready| stream.follow_mark(ready))?;
        // SAFETY: the caller holds all of these arrays until the event is reached.
        unsafe { stream.copy(address, part.span.address(), part.span.bytes()) }?;
        address += part.span.bytes() as u64;
    }
    stream.mark().map(Arc::new)
}

pub(crate) fn send(group: &Group, x: &AnyArray, to: usize, tag: u32) -> Result<()> {
    match x {
        AnyArray::Host(x) => group.raw().send(x.bytes(), x.dtype, to, tag),
        AnyArray::Cuda(x) => on(group, [x]).send(x.span, x.dtype, to, tag),
    }
}

pub(crate) fn recv(group: &Group, x: &mut AnyArray, from: usize, tag: u32) -> Result<()> {
    match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            group.raw().recv(x.bytes_mut(), dtype, from, tag)
        }
        AnyArray::Cuda(x) => on(group, [&*x]).recv(x.span, x.dtype, from, tag),
    }
}

/// Starts to send; the array is kept alive until the message is complete.
pub(crate) fn start_send(group: &Group, x: AnyArray, to: usize, tag: u32) -> Result<Running> {
    Ok(match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            Running::Message(group.raw().start_send(x, dtype, to, tag)?)
        }
        AnyArray::Cuda(x) => {
            let (span, dtype) = (x.span, x.dtype);
            Running::DeviceMessage(on(group, [&x]).start_send(x, span, dtype, to, tag)?)
        }
    })
}

/// Starts to receive; as `start_send`.
pub(crate) fn start_recv(group: &Group, x: AnyArray, from: usize, tag: u32) -> Result<Running> {
    Ok(match x {
        AnyArray::Host(x) => {
            let dtype = x.dtype;
            Running::Message(group.raw().start_recv(x, dtype, from, tag)?)
        }
        AnyArray::Cuda(x) => {
            let (span, dtype) = (x.span, x.dtype);
            Running::DeviceMessage(on(group, [&x]).start_recv(x, span, dtype, from, tag)?)
        }
    })
}
