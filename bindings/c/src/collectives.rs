//! For C: collectives with one count for all ranks, and messages. `group` is UNISONO_WORLD or a group's handle.

use std::ffi::c_void;

use crate::errors::guard;
use crate::group::{GroupHandle, collective};
use crate::session;

/// Waits until every member has called this. Afterwards, all earlier adds of the members to tables are applied.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_barrier(group: GroupHandle) -> i32 {
    collective("barrier", group, |_, call| {
        session::current("barrier")?.flush()?;
        call.disarm().barrier()
    })
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
    collective("broadcast", group, |args, call| {
        let (dtype, root) = (args.dtype(dtype)?, args.rank(root)?);
        let values = args.output(values, count, dtype)?;
        call.disarm().raw().broadcast(values, dtype, root)
    })
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
    collective("all_reduce", group, |args, call| {
        let (dtype, op) = (args.dtype(dtype)?, args.operation(op)?);
        let values = args.output(values, count, dtype)?;
        call.disarm().raw().all_reduce(values, dtype, op)
    })
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
    collective("reduce", group, |args, call| {
        let (dtype, op, root) = (args.dtype(dtype)?, args.operation(op)?, args.rank(root)?);
        let values = args.output(values, count, dtype)?;
        call.disarm().raw().reduce(values, dtype, op, root)
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
    collective("gather", group, |args, call| {
        let (dtype, root) = (args.dtype(dtype)?, args.rank(root)?);
        let counts = vec![count; call.size()];
        let room = if root == call.rank() { args.sum(&counts)? } else { 0 };
        let (input, output) = args.disjoint((input, count), (output, room), dtype)?;
        call.disarm().raw().gather(input, Some(output), &counts, dtype, root)
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
    collective("scatter", group, |args, call| {
        let (dtype, root) = (args.dtype(dtype)?, args.rank(root)?);
        let counts = vec![count; call.size()];
        let whole = if root == call.rank() { args.sum(&counts)? } else { 0 };
        let (input, output) = args.disjoint((input, whole), (output, count), dtype)?;
        call.disarm().raw().scatter(Some(input), &counts, output, dtype, root)
    })
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
    collective("all_gather", group, |args, call| {
        let dtype = args.dtype(dtype)?;
        let counts = vec![count; call.size()];
        let (input, output) = args.disjoint((input, count), (output, args.sum(&counts)?), dtype)?;
        call.disarm().raw().all_gather(input, output, &counts, dtype)
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
    collective("reduce_scatter", group, |args, call| {
        let (dtype, op) = (args.dtype(dtype)?, args.operation(op)?);
        let counts = vec![count; call.size()];
        let (input, output) = args.disjoint((input, args.sum(&counts)?), (output, count), dtype)?;
        call.disarm().raw().reduce_scatter(input, output, &counts, dtype, op)
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
    collective("all_to_all", group, |args, call| {
        let dtype = args.dtype(dtype)?;
        let counts = vec![count; call.size()];
        let (input, output) =
            args.disjoint((input, args.sum(&counts)?), (output, args.sum(&counts)?), dtype)?;
        call.disarm().raw().all_to_all(input, &counts, output, &counts, dtype)
    })
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
