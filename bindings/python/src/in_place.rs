//! Calls that read or write the caller's own array: each returns a job for this thread or the background.

use unisono::{Group, ReduceOp, Result};

use crate::any_array::AnyArray;
use crate::call::CallOutcome;
use crate::dispatch;

pub(crate) fn barrier() -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    |group| group.raw().barrier().map(|()| CallOutcome::Nothing)
}

pub(crate) fn broadcast(
    mut x: AnyArray,
    root: usize,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| dispatch::broadcast(group, &mut x, root).map(|()| CallOutcome::Nothing)
}

pub(crate) fn all_reduce(
    mut x: AnyArray,
    op: ReduceOp,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| dispatch::all_reduce(group, &mut x, op).map(|()| CallOutcome::Nothing)
}

pub(crate) fn reduce(
    mut x: AnyArray,
    op: ReduceOp,
    root: usize,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| dispatch::reduce(group, &mut x, op, root).map(|()| CallOutcome::Nothing)
}

pub(crate) fn send(
    x: AnyArray,
    to: usize,
    tag: u32,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| dispatch::send(group, &x, to, tag).map(|()| CallOutcome::Nothing)
}

pub(crate) fn recv(
    mut x: AnyArray,
    from: usize,
    tag: u32,
) -> impl FnMut(&Group) -> Result<CallOutcome> + Send + 'static {
    move |group| dispatch::recv(group, &mut x, from, tag).map(|()| CallOutcome::Nothing)
}
