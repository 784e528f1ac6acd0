//! For C: collectives with one count for all ranks, now and in the background, and messages. `group` is UNISONO_WORLD or a
//! group's handle.

use std::ffi::c_void;

use unisono::{DType, Group, Result};

use crate::errors::guard;
use crate::ffi_args::FfiArgs;
use crate::group::{CallGuard, GroupHandle, Job, collective, make, start};
use crate::pending::{CallerBuffer, PendingHandle};
use crate::session;

impl FfiArgs {
    /// As [`FfiArgs::disjoint`], for a job.
    fn buffers(
        &self,
        input: (*const c_void, usize),
        output: (*mut c_void, usize),
        dtype: DType,
    ) -> Result<(CallerBuffer, CallerBuffer)> {
        let (input, output) = self.disjoint(input, output, dtype)?;
        Ok((CallerBuffer::input(input), CallerBuffer::output(output)))
    }
}

/// Waits until every member has called this. Afterwards, all earlier adds of the members to tables are applied.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_barrier(group: GroupHandle) -> i32 {
    collective("barrier", group, |_, call| {
        session::current("barrier")?.flush()?;
        call.disarm().barrier()
    })
}

fn broadcast(
    args: &FfiArgs,
    _call: &CallGuard,
    (values, count, dtype, root): (*mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, root) = (args.dtype(dtype)?, args.rank(root)?);
    let mut values = CallerBuffer::output(args.output(values, count, dtype)?);
    Ok(move |group: &Group| group.raw().broadcast(&mut values, dtype, root).map(|()| values))
}

/// Copies the root's values to every member.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_broadcast(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> i32 {
    make("broadcast", group, |args, call| broadcast(args, call, (values, count, dtype, root)))
}

/// Starts unisono_broadcast in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_broadcast(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("broadcast", group, pending, |args, call| broadcast(args, call, (values, count, dtype, root)))
}

fn all_reduce(
    args: &FfiArgs,
    _call: &CallGuard,
    (values, count, dtype, op): (*mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, op) = (args.dtype(dtype)?, args.operation(op)?);
    let mut values = CallerBuffer::output(args.output(values, count, dtype)?);
    Ok(move |group: &Group| group.raw().all_reduce(&mut values, dtype, op).map(|()| values))
}

/// Reduces the members' values; every member gets the result, in place.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_all_reduce(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> i32 {
    make("all_reduce", group, |args, call| all_reduce(args, call, (values, count, dtype, op)))
}

/// Starts unisono_all_reduce in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_all_reduce(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("all_reduce", group, pending, |args, call| all_reduce(args, call, (values, count, dtype, op)))
}

fn reduce(
    args: &FfiArgs,
    _call: &CallGuard,
    (values, count, dtype, op, root): (*mut c_void, usize, i32, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, op, root) = (args.dtype(dtype)?, args.operation(op)?, args.rank(root)?);
    let mut values = CallerBuffer::output(args.output(values, count, dtype)?);
    Ok(move |group: &Group| group.raw().reduce(&mut values, dtype, op, root).map(|()| values))
}

/// Reduces the members' values into the root's buffer; the other members' buffers do not change.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_reduce(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    root: i32,
) -> i32 {
    make("reduce", group, |args, call| reduce(args, call, (values, count, dtype, op, root)))
}

/// Starts unisono_reduce in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_reduce(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    root: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("reduce", group, pending, |args, call| reduce(args, call, (values, count, dtype, op, root)))
}

fn scan(
    args: &FfiArgs,
    _call: &CallGuard,
    (values, count, dtype, op): (*mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, op) = (args.dtype(dtype)?, args.operation(op)?);
    let mut values = CallerBuffer::output(args.output(values, count, dtype)?);
    Ok(move |group: &Group| group.raw().scan(&mut values, dtype, op).map(|()| values))
}

/// Reduces the values of the members up to this one, in place: rank 0 keeps its values (their truth, 0 or 1, under a logical
/// operation), and the last rank gets the result of unisono_all_reduce.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_scan(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> i32 {
    make("scan", group, |args, call| scan(args, call, (values, count, dtype, op)))
}

/// Starts unisono_scan in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_scan(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("scan", group, pending, |args, call| scan(args, call, (values, count, dtype, op)))
}

fn gather(
    args: &FfiArgs,
    call: &CallGuard,
    (input, output, count, dtype, root): (*const c_void, *mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, root, counts) = (args.dtype(dtype)?, args.rank(root)?, vec![count; call.size()]);
    let room = if root == call.rank() { args.sum(&counts)? } else { 0 };
    let (input, mut output) = args.buffers((input, count), (output, room), dtype)?;
    Ok(move |group: &Group| {
        group.raw().gather(&input, Some(&mut output), &counts, dtype, root).map(|()| output)
    })
}

/// Gathers `count` values of every member at the root, in rank order; only the root's output is used, the others may
/// pass NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_gather(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> i32 {
    make("gather", group, |args, call| gather(args, call, (input, output, count, dtype, root)))
}

/// Starts unisono_gather in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_gather(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("gather", group, pending, |args, call| gather(args, call, (input, output, count, dtype, root)))
}

fn scatter(
    args: &FfiArgs,
    call: &CallGuard,
    (input, output, count, dtype, root): (*const c_void, *mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, root, counts) = (args.dtype(dtype)?, args.rank(root)?, vec![count; call.size()]);
    let whole = if root == call.rank() { args.sum(&counts)? } else { 0 };
    let (input, mut output) = args.buffers((input, whole), (output, count), dtype)?;
    Ok(move |group: &Group| {
        group.raw().scatter(Some(&input), &counts, &mut output, dtype, root).map(|()| output)
    })
}

/// Scatters the root's values, `count` to every member in rank order; only the root's input is used, the others may
/// pass NULL.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_scatter(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
) -> i32 {
    make("scatter", group, |args, call| scatter(args, call, (input, output, count, dtype, root)))
}

/// Starts unisono_scatter in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_scatter(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    root: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("scatter", group, pending, |args, call| scatter(args, call, (input, output, count, dtype, root)))
}

fn all_gather(
    args: &FfiArgs,
    call: &CallGuard,
    (input, output, count, dtype): (*const c_void, *mut c_void, usize, i32),
) -> Result<impl Job + use<>> {
    let (dtype, counts) = (args.dtype(dtype)?, vec![count; call.size()]);
    let (input, mut output) = args.buffers((input, count), (output, args.sum(&counts)?), dtype)?;
    Ok(move |group: &Group| group.raw().all_gather(&input, &mut output, &counts, dtype).map(|()| output))
}

/// Gathers `count` values of every member, in rank order; every member gets all of them.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_all_gather(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
) -> i32 {
    make("all_gather", group, |args, call| all_gather(args, call, (input, output, count, dtype)))
}

/// Starts unisono_all_gather in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_all_gather(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("all_gather", group, pending, |args, call| all_gather(args, call, (input, output, count, dtype)))
}

fn reduce_scatter(
    args: &FfiArgs,
    call: &CallGuard,
    (input, output, count, dtype, op): (*const c_void, *mut c_void, usize, i32, i32),
) -> Result<impl Job + use<>> {
    let (dtype, op, counts) = (args.dtype(dtype)?, args.operation(op)?, vec![count; call.size()]);
    let (input, mut output) = args.buffers((input, args.sum(&counts)?), (output, count), dtype)?;
    Ok(move |group: &Group| {
        group.raw().reduce_scatter(&input, &mut output, &counts, dtype, op).map(|()| output)
    })
}

/// Reduces the members' inputs, each of `count` times the number of members values; every member gets `count` values of
/// the result, in rank order.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_reduce_scatter(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> i32 {
    make("reduce_scatter", group, |args, call| reduce_scatter(args, call, (input, output, count, dtype, op)))
}

/// Starts unisono_reduce_scatter in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_reduce_scatter(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("reduce_scatter", group, pending, |args, call| {
        reduce_scatter(args, call, (input, output, count, dtype, op))
    })
}

fn all_to_all(
    args: &FfiArgs,
    call: &CallGuard,
    (input, output, count, dtype): (*const c_void, *mut c_void, usize, i32),
) -> Result<impl Job + use<>> {
    let (dtype, counts) = (args.dtype(dtype)?, vec![count; call.size()]);
    let all = args.sum(&counts)?;
    let (input, mut output) = args.buffers((input, all), (output, all), dtype)?;
    Ok(move |group: &Group| {
        group.raw().all_to_all(&input, &counts, &mut output, &counts, dtype).map(|()| output)
    })
}

/// Sends `count` values to every member and receives as many from each: part r of the input goes to rank r, part r of
/// the output comes from rank r.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_all_to_all(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
) -> i32 {
    make("all_to_all", group, |args, call| all_to_all(args, call, (input, output, count, dtype)))
}

/// Starts unisono_all_to_all in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_start_all_to_all(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: i32,
    pending: *mut PendingHandle,
) -> i32 {
    start("all_to_all", group, pending, |args, call| all_to_all(args, call, (input, output, count, dtype)))
}

/// Sends values to a member. Returns when the buffer may be reused: at once for short messages, when the receiver has
/// received them for long ones. Messages with the same tag between two members arrive in order.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_send(
    group: GroupHandle,
    values: *const c_void,
    count: usize,
    dtype: i32,
    to: i32,
    tag: u32,
) -> i32 {
    guard("send", |args| {
        let group = args.group(group)?;
        let (dtype, to) = (args.dtype(dtype)?, args.rank(to)?);
        group.raw().send(args.input(values, count, dtype)?, dtype, to, tag)
    })
}

/// Receives values from a member; type and count must match the sender's.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_recv(
    group: GroupHandle,
    values: *mut c_void,
    count: usize,
    dtype: i32,
    from: i32,
    tag: u32,
) -> i32 {
    guard("recv", |args| {
        let group = args.group(group)?;
        let (dtype, from) = (args.dtype(dtype)?, args.rank(from)?);
        group.raw().recv(args.output(values, count, dtype)?, dtype, from, tag)
    })
}
