//! The verbs that read or write the caller's own array: each becomes a job for this thread or the background.

use unisono::{Group, ReduceOp, Result};

use crate::call::Outcome;
use crate::door;
use crate::placed::Placed;

pub(crate) fn barrier() -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    |group| group.raw().barrier().map(|()| Outcome::Nothing)
}

pub(crate) fn broadcast(
    mut x: Placed,
    root: usize,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| door::broadcast(group, &mut x, root).map(|()| Outcome::Nothing)
}

pub(crate) fn all_reduce(
    mut x: Placed,
    op: ReduceOp,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| door::all_reduce(group, &mut x, op).map(|()| Outcome::Nothing)
}

pub(crate) fn reduce(
    mut x: Placed,
    op: ReduceOp,
    root: usize,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| door::reduce(group, &mut x, op, root).map(|()| Outcome::Nothing)
}

pub(crate) fn send(x: Placed, to: usize, tag: u32) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| door::send(group, &x, to, tag).map(|()| Outcome::Nothing)
}

pub(crate) fn recv(
    mut x: Placed,
    from: usize,
    tag: u32,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| door::recv(group, &mut x, from, tag).map(|()| Outcome::Nothing)
}
