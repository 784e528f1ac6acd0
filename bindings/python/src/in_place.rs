//! The verbs that read or write the caller's own array: each becomes a job for this thread or the background.

use unisono::{Group, ReduceOp, Result};

use crate::array::View;
use crate::call::Outcome;

pub(crate) fn barrier() -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    |group| group.raw().barrier().map(|()| Outcome::Nothing)
}

pub(crate) fn broadcast(mut x: View, root: usize) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| {
        let dtype = x.dtype;
        group.raw().broadcast(x.bytes_mut(), dtype, root).map(|()| Outcome::Nothing)
    }
}

pub(crate) fn all_reduce(
    mut x: View,
    op: ReduceOp,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| {
        let dtype = x.dtype;
        group.raw().all_reduce(x.bytes_mut(), dtype, op).map(|()| Outcome::Nothing)
    }
}

pub(crate) fn reduce(
    mut x: View,
    op: ReduceOp,
    root: usize,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| {
        let dtype = x.dtype;
        group.raw().reduce(x.bytes_mut(), dtype, op, root).map(|()| Outcome::Nothing)
    }
}

pub(crate) fn send(x: View, to: usize, tag: u32) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| group.raw().send(x.bytes(), x.dtype, to, tag).map(|()| Outcome::Nothing)
}

pub(crate) fn recv(
    mut x: View,
    from: usize,
    tag: u32,
) -> impl FnMut(&Group) -> Result<Outcome> + Send + 'static {
    move |group| {
        let dtype = x.dtype;
        group.raw().recv(x.bytes_mut(), dtype, from, tag).map(|()| Outcome::Nothing)
    }
}
