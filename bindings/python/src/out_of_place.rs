//! Collectives whose result is a new array or the caller's `out`: ranks first exchange unknown sizes, then the data.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono::cuda::{Event, Stream};
use unisono::{DType, Error, Group, ReduceOp, Result};

use crate::any_array::{AnyArray, CudaArray, ResultPlacement, mixed, raw_on};
use crate::call::CallOutcome;
use crate::destination::{Destination, Output};
use crate::header::ArrayHeader;
use crate::result_array::ResultArray;

/// The rows of each part if `rows` are split as evenly as possible: the first parts get one more.
fn even(rows: usize, parts: usize) -> Vec<usize> {
    (0..parts).map(|part| rows / parts + usize::from(part < rows % parts)).collect()
}

/// The same shape with a different first axis.
fn with_rows(shape: &[usize], rows: usize) -> Vec<usize> {
    std::iter::once(rows).chain(shape.iter().skip(1).copied()).collect()
}

fn scaled(rows: &[usize], row: usize) -> Vec<usize> {
    rows.iter().map(|&rows| rows * row).collect()
}

/// The group with the remaining time for a call's second step.
fn with_remaining_time(group: &Group, started: Instant) -> Group {
    const LEAST: Duration = Duration::from_millis(1);
    group.with_timeout(group.timeout().saturating_sub(started.elapsed()).max(LEAST))
}

/// Allocates a result. A rank that fails here skips the collective, so that the others do not match its next call with it.
fn allocate_result(
    group: &Group,
    placement: &ResultPlacement,
    dtype: DType,
    shape: Vec<usize>,
    operation: &'static str,
) -> Result<ResultArray> {
    ResultArray::new(placement, dtype, shape, operation).inspect_err(|_| group.skip_call())
}

fn need_axis(x: &AnyArray, operation: &str) -> Result<()> {
    if x.shape().is_empty() {
        let advice = "reshape it: x.reshape(1)";
        return Err(Error::usage(operation, "an array with a first axis", "one without axes", advice));
    }
    Ok(())
}

/// Gathers the parts of all ranks, stacked on a new first axis (or, varied, concatenated along the first), at the root
/// or, without a root, on every rank. Then `x` may be this rank's part of the caller's array for the result.
pub(crate) fn gather(
    x: AnyArray,
    root: Option<usize>,
    varied: bool,
    mut to: Destination,
    operation: &'static str,
) -> Result<impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static> {
    if varied {
        need_axis(&x, operation)?;
    }
    let header = ArrayHeader::new(&x, if varied { x.shape() } else { &[] }, operation)?;
    Ok(move |group: &Group| {
        let mut group = group.clone();
        let (shape, counts) = if varied {
            let started = Instant::now();
            let headers = ArrayHeader::all_gather(std::slice::from_ref(&header), &group, operation)?;
            same_rows(&headers, &group, operation)?;
            group = with_remaining_time(&group, started);
            let rows = headers.iter().map(|one| one.shape[0]).sum();
            (with_rows(x.shape(), rows), headers.iter().map(ArrayHeader::elements).collect())
        } else {
            let stacked = std::iter::once(group.size()).chain(x.shape().iter().copied()).collect();
            (stacked, vec![x.elements(); group.size()])
        };
        let Some(root) = root else {
            let mut result = to.prepare(&group, &x.placement(), x.dtype(), shape, operation)?;
            if let Some(out) = result.holding(&x) {
                group.raw().all_gather_in_place(out.bytes_mut(), &counts, x.dtype())?;
                return Ok(result.into());
            }
            let raw = raw_on(&group, [x.on_device(), result.on_device()]);
            raw.all_gather(x.buffer(), result.buffer_mut(), &counts, x.dtype())?;
            return Ok(result.into());
        };
        let mut result = match root == group.rank() {
            true => Some(to.prepare(&group, &x.placement(), x.dtype(), shape, operation)?),
            false => None,
        };
        let raw = raw_on(&group, [x.on_device(), result.as_ref().and_then(Output::on_device)]);
        let output = result.as_mut().map(Output::buffer_mut);
        raw.gather(x.buffer(), output, &counts, x.dtype(), root)?;
        Ok(result.map_or(CallOutcome::Nothing, Into::into))
    })
}

/// Reduces the values of all ranks to new memory at the root; inputs are not modified.
pub(crate) fn reduce(
    x: AnyArray,
    op: ReduceOp,
    root: usize,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group: &Group| {
        let mut result = match root == group.rank() {
            true => Some(allocate_result(group, &x.placement(), x.dtype(), x.shape().to_vec(), "reduce")?),
            false => None,
        };
        let raw = raw_on(group, [x.on_device(), result.as_ref().and_then(ResultArray::on_device)]);
        let output = result.as_mut().map(ResultArray::buffer_mut);
        raw.reduce_to(x.buffer(), output, x.dtype(), op, root)?;
        Ok(result.map_or(CallOutcome::Nothing, CallOutcome::One))
    }
}

/// Fails, identically on every rank, if parts to be concatenated differ in more than their first axis.
fn same_rows(headers: &[ArrayHeader], group: &Group, operation: &str) -> Result<()> {
    let first = &headers[0];
    let differs = |one: &ArrayHeader| {
        one.dtype != first.dtype || one.shape.len() != first.shape.len() || one.shape[1..] != first.shape[1..]
    };
    match headers.iter().position(differs) {
        None => Ok(()),
        Some(other) => {
            let describe =
                |rank: usize| format!("{:?} {} on rank {rank}", headers[rank].shape, headers[rank].dtype);
            let received = format!("{} and {}", describe(0), describe(other));
            let advice = "give every rank the same type and the same axes after the first";
            let error =
                Error::usage(operation, "parts that differ in their first axis only", received, advice);
            Err(error.at_rank(group.members()[group.rank()]))
        }
    }
}

/// Scatters the root's rows as evenly as possible; the other ranks learn type and shape from the root, and the memory
/// space too, unless they have named one.
pub(crate) fn scatter(
    x: Option<AnyArray>,
    root: usize,
    placement: Option<ResultPlacement>,
    mut to: Destination,
) -> Result<impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static> {
    let mine = match &x {
        Some(x) => {
            need_axis(x, "scatter")?;
            Some(ArrayHeader::new(x, x.shape(), "scatter")?)
        }
        None => None,
    };
    Ok(move |group: &Group| {
        let started = Instant::now();
        let whole = ArrayHeader::broadcast(mine.as_ref(), group, root, "scatter")?;
        let group = with_remaining_time(group, started);
        let rows = even(whole.shape[0], group.size());
        let counts = scaled(&rows, whole.shape[1..].iter().product());
        let placement = match (&x, &placement) {
            (Some(x), _) => x.placement(),
            (None, Some(placement)) => placement.clone(),
            (None, None) if whole.is_cuda => {
                ResultPlacement::current("scatter").inspect_err(|_| group.skip_call())?
            }
            (None, None) => ResultPlacement::Host,
        };
        let shape = with_rows(&whole.shape, rows[group.rank()]);
        let mut result = to.prepare(&group, &placement, whole.dtype, shape, "scatter")?;
        let raw = raw_on(&group, [x.as_ref().and_then(AnyArray::on_device), result.on_device()]);
        let input = x.as_ref().map(AnyArray::buffer);
        raw.scatter(input, &counts, result.buffer_mut(), whole.dtype, root)?;
        Ok(result.into())
    })
}

/// Reduces the arrays of all ranks; each rank keeps its share of the rows.
pub(crate) fn reduce_scatter(
    x: AnyArray,
    op: ReduceOp,
    mut to: Destination,
) -> Result<impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static> {
    need_axis(&x, "reduce_scatter")?;
    Ok(move |group: &Group| {
        let rows = even(x.shape()[0], group.size());
        let counts = scaled(&rows, x.row());
        let shape = with_rows(x.shape(), rows[group.rank()]);
        let mut result = to.prepare(group, &x.placement(), x.dtype(), shape, "reduce_scatter")?;
        let raw = raw_on(group, [x.on_device(), result.on_device()]);
        raw.reduce_scatter(x.buffer(), result.buffer_mut(), &counts, x.dtype(), op)?;
        Ok(result.into())
    })
}

/// Exchanges blocks of rows: block i goes to rank i. `splits` are the rows for each rank and from each rank; without
/// them all blocks are equal.
pub(crate) fn all_to_all(
    x: AnyArray,
    size: usize,
    splits: Option<(Vec<usize>, Vec<usize>)>,
    mut to: Destination,
) -> Result<impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static> {
    need_axis(&x, "all_to_all")?;
    let rows = x.shape()[0];
    let (sent, received) = match splits {
        Some((sent, received)) => {
            check_splits(&sent, size, Some(rows))?;
            check_splits(&received, size, None)?;
            (sent, received)
        }
        None if rows.is_multiple_of(size) => (vec![rows / size; size], vec![rows / size; size]),
        None => {
            let expected = format!("a first axis that {size} ranks can share equally");
            let advice = "pad it, pass `splits`, or pass a list with one array for each rank";
            return Err(Error::usage("all_to_all", expected, format!("{rows} rows"), advice));
        }
    };
    Ok(move |group: &Group| {
        let shape = with_rows(x.shape(), received.iter().sum());
        let mut result = to.prepare(group, &x.placement(), x.dtype(), shape, "all_to_all")?;
        let raw = raw_on(group, [x.on_device(), result.on_device()]);
        let (sent, received) = (scaled(&sent, x.row()), scaled(&received, x.row()));
        raw.all_to_all(x.buffer(), &sent, result.buffer_mut(), &received, x.dtype())?;
        Ok(result.into())
    })
}

/// Rejects splits that are not one number of rows for each rank, or do not add up to `rows`.
fn check_splits(splits: &[usize], size: usize, rows: Option<usize>) -> Result<()> {
    let total = splits.iter().try_fold(0usize, |total, &rows| total.checked_add(rows));
    if splits.len() == size && total.is_some_and(|total| rows.is_none_or(|rows| rows == total)) {
        return Ok(());
    }
    let sum = rows.map_or(String::new(), |rows| format!(" with a sum of {rows}"));
    let expected = format!("{size} splits, one for each rank{sum}");
    let advice = "pass the number of rows for each rank as `splits`, and from each rank as `out_splits`";
    Err(Error::usage("all_to_all", expected, format!("{splits:?}"), advice))
}

/// Exchanges one array per rank, of any shape: array i goes to rank i.
pub(crate) fn all_to_all_varied(
    parts: Vec<AnyArray>,
    size: usize,
) -> Result<impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static> {
    if parts.len() != size {
        let expected = format!("a list of {size} arrays, one for each rank");
        return Err(Error::usage("all_to_all", expected, format!("{}", parts.len()), "add or remove arrays"));
    }
    let headers = parts.iter().map(|part| ArrayHeader::new(part, part.shape(), "all_to_all"));
    let mine = headers.collect::<Result<Vec<_>>>()?;
    Ok(move |group: &Group| {
        let started = Instant::now();
        let headers = ArrayHeader::all_gather(&mine, group, "all_to_all")?;
        let dtype = same_type(&headers, group)?;
        let group = with_remaining_time(group, started);
        let incoming: Vec<&ArrayHeader> = headers.iter().skip(group.rank()).step_by(size).collect();
        let sent: Vec<usize> = mine.iter().map(ArrayHeader::elements).collect();
        let received: Vec<usize> = incoming.iter().map(|header| header.elements()).collect();
        let mut whole =
            allocate_result(&group, &parts[0].placement(), dtype, vec![received.iter().sum()], "all_to_all")?;
        exchange_concatenated(&group, &parts, &mut whole, &sent, &received)?;
        Ok(CallOutcome::Many(whole, incoming.iter().map(|header| header.shape.clone()).collect()))
    })
}

/// Fails, identically on every rank, if the lists mix element types.
fn same_type(headers: &[ArrayHeader], group: &Group) -> Result<DType> {
    let first = headers[0].dtype;
    match headers.iter().position(|header| header.dtype != first) {
        None => Ok(first),
        Some(other) => {
            let received = format!("{first} and {}", headers[other].dtype);
            let advice = format!(
                "convert what rank {} passes for rank {}",
                other / group.size(),
                other % group.size()
            );
            Err(Error::usage("all_to_all", "one element type in all lists", received, advice))
        }
    }
}

/// all_to_all of one array per rank, which are concatenated first.
fn exchange_concatenated(
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
                AnyArray::Cuda(_) => Err(mixed("all_to_all", "arrays in both".into())),
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
            let raw = group.raw().after(marks);
            raw.all_to_all(joined.span, sent, memory.span, received, memory.dtype).inspect_err(let_go)
        }
    }
}

/// Concatenates device arrays; the returned event follows the copies.
fn join(stream: &Stream, parts: &[AnyArray], joined: &CudaArray) -> Result<Arc<Event>> {
    let mut address = joined.span.address();
    joined.ready.iter().try_for_each(|ready| stream.follow_mark(ready))?;
    for part in parts {
        let AnyArray::Cuda(part) = part else { return Err(mixed("all_to_all", "arrays in both".into())) };
        part.ready.iter().try_for_each(|ready| stream.follow_mark(ready))?;
        // SAFETY: the caller holds all of these arrays until the event is reached.
        unsafe { stream.copy(address, part.span.address(), part.span.bytes()) }?;
        address += part.span.bytes() as u64;
    }
    stream.mark().map(Arc::new)
}
