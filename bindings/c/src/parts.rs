//! For C: collectives whose parts may differ in length. `counts` has one number per member.

use std::ffi::c_void;

use unisono::Result;

use crate::ffi_args::FfiArgs;
use crate::group::{CallGuard, GroupHandle, collective};

impl FfiArgs {
    /// The members' counts.
    fn counts(&self, counts: *const usize, call: &CallGuard) -> Result<&[usize]> {
        self.list(counts, call.size(), "one count for each member")
    }

    /// The total number of elements.
    pub(crate) fn sum(&self, counts: &[usize]) -> Result<usize> {
        let sum = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        sum.ok_or_else(|| {
            self.usage_error("counts that fit in memory", format!("{counts:?}"), "is one negative?")
        })
    }
}

/// As unisono_gather, with counts[r] values from member r.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_gather_varied(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    dtype: i32,
    root: i32,
) -> i32 {
    collective("gather", group, |args, call| {
        let (dtype, root, counts) = (args.dtype(dtype)?, args.rank(root)?, args.counts(counts, &call)?);
        let room = if root == call.rank() { args.sum(counts)? } else { 0 };
        let (input, output) = args.disjoint((input, counts[call.rank()]), (output, room), dtype)?;
        call.disarm().raw().gather(input, Some(output), counts, dtype, root)
    })
}

/// As unisono_scatter, with counts[r] values for member r.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_scatter_varied(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    dtype: i32,
    root: i32,
) -> i32 {
    collective("scatter", group, |args, call| {
        let (dtype, root, counts) = (args.dtype(dtype)?, args.rank(root)?, args.counts(counts, &call)?);
        let whole = if root == call.rank() { args.sum(counts)? } else { 0 };
        let (input, output) = args.disjoint((input, whole), (output, counts[call.rank()]), dtype)?;
        call.disarm().raw().scatter(Some(input), counts, output, dtype, root)
    })
}

/// As unisono_all_gather, with counts[r] values from member r.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_all_gather_varied(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    dtype: i32,
) -> i32 {
    collective("all_gather", group, |args, call| {
        let (dtype, counts) = (args.dtype(dtype)?, args.counts(counts, &call)?);
        let (input, output) =
            args.disjoint((input, counts[call.rank()]), (output, args.sum(counts)?), dtype)?;
        call.disarm().raw().all_gather(input, output, counts, dtype)
    })
}

/// As unisono_reduce_scatter, with counts[r] values of the result for member r.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_reduce_scatter_varied(
    group: GroupHandle,
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    dtype: i32,
    op: i32,
) -> i32 {
    collective("reduce_scatter", group, |args, call| {
        let (dtype, op, counts) = (args.dtype(dtype)?, args.operation(op)?, args.counts(counts, &call)?);
        let (input, output) =
            args.disjoint((input, args.sum(counts)?), (output, counts[call.rank()]), dtype)?;
        call.disarm().raw().reduce_scatter(input, output, counts, dtype, op)
    })
}

/// As unisono_all_to_all, with send_counts[r] values to member r and receive_counts[r] from it.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_all_to_all_varied(
    group: GroupHandle,
    input: *const c_void,
    send_counts: *const usize,
    output: *mut c_void,
    receive_counts: *const usize,
    dtype: i32,
) -> i32 {
    collective("all_to_all", group, |args, call| {
        let dtype = args.dtype(dtype)?;
        let sent = args.counts(send_counts, &call)?;
        let received = args.counts(receive_counts, &call)?;
        let (input, output) =
            args.disjoint((input, args.sum(sent)?), (output, args.sum(received)?), dtype)?;
        call.disarm().raw().all_to_all(input, sent, output, received, dtype)
    })
}
