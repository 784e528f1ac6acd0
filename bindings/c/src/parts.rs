//! For C: the verbs whose parts may differ in length. `counts` has one number for each member.

use std::ffi::c_void;

use unisono::Result;

use crate::border::Border;
use crate::group::{GroupHandle, Unmade, verb};

impl Border {
    /// The members' counts.
    fn counts(&self, counts: *const usize, call: &Unmade) -> Result<&[usize]> {
        self.list(counts, call.size(), "one count for each member")
    }

    /// All elements together.
    pub(crate) fn sum(&self, counts: &[usize]) -> Result<usize> {
        let sum = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
        sum.ok_or_else(|| self.refuse("counts that fit in memory", format!("{counts:?}"), "is one negative?"))
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
    verb("gather", group, |border, call| {
        let (dtype, root, counts) = (border.dtype(dtype)?, border.rank(root)?, border.counts(counts, &call)?);
        let room = if root == call.rank() { border.sum(counts)? } else { 0 };
        let (input, output) = border.apart((input, counts[call.rank()]), (output, room), dtype)?;
        call.made().raw().gather(input, Some(output), counts, dtype, root)
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
    verb("scatter", group, |border, call| {
        let (dtype, root, counts) = (border.dtype(dtype)?, border.rank(root)?, border.counts(counts, &call)?);
        let whole = if root == call.rank() { border.sum(counts)? } else { 0 };
        let (input, output) = border.apart((input, whole), (output, counts[call.rank()]), dtype)?;
        call.made().raw().scatter(Some(input), counts, output, dtype, root)
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
    verb("all_gather", group, |border, call| {
        let (dtype, counts) = (border.dtype(dtype)?, border.counts(counts, &call)?);
        let (input, output) =
            border.apart((input, counts[call.rank()]), (output, border.sum(counts)?), dtype)?;
        call.made().raw().all_gather(input, output, counts, dtype)
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
    verb("reduce_scatter", group, |border, call| {
        let (dtype, op, counts) =
            (border.dtype(dtype)?, border.operation(op)?, border.counts(counts, &call)?);
        let (input, output) =
            border.apart((input, border.sum(counts)?), (output, counts[call.rank()]), dtype)?;
        call.made().raw().reduce_scatter(input, output, counts, dtype, op)
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
    verb("all_to_all", group, |border, call| {
        let dtype = border.dtype(dtype)?;
        let sent = border.counts(send_counts, &call)?;
        let received = border.counts(receive_counts, &call)?;
        let (input, output) =
            border.apart((input, border.sum(sent)?), (output, border.sum(received)?), dtype)?;
        call.made().raw().all_to_all(input, sent, output, received, dtype)
    })
}
