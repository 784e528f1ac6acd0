//! For C: groups of ranks.

use unisono::{Group, Result};

use crate::errors::guard;
use crate::ffi_args::FfiArgs;
use crate::pending::{CallerBuffer, PendingHandle};
use crate::{handles, session};

/// A group: ranks that make the same calls in the same order.
pub type GroupHandle = u64;

/// The group of all ranks; it is not freed.
pub const UNISONO_WORLD: GroupHandle = 0;

/// The handle that a rank gets if it is in no group.
pub const UNISONO_NO_GROUP: GroupHandle = u64::MAX;

impl FfiArgs {
    /// The group of a handle.
    pub(crate) fn group(&self, handle: u64) -> Result<Group> {
        let session = session::current(self.operation)?;
        if handle == UNISONO_WORLD { Ok(session.group.clone()) } else { self.object(handle) }
    }
}

/// A guard for a collective call whose arguments are still being checked. If they are rejected, the guard counts the call
/// all the same: the other ranks may be making it.
pub(crate) struct CallGuard {
    group: Option<Group>,
}

impl CallGuard {
    pub(crate) fn new(group: Group) -> CallGuard {
        CallGuard { group: Some(group) }
    }

    /// Disarms the guard: the call is made now, and is counted by the library.
    pub(crate) fn disarm(mut self) -> Group {
        self.group.take().expect("taken out here alone")
    }

    pub(crate) fn size(&self) -> usize {
        self.group.as_ref().map_or(0, Group::size)
    }

    pub(crate) fn rank(&self) -> usize {
        self.group.as_ref().map_or(0, Group::rank)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.skip_call();
        }
    }
}

/// Runs one collective call.
pub(crate) fn collective(
    operation: &'static str,
    group: GroupHandle,
    work: impl FnOnce(&FfiArgs, CallGuard) -> Result<()>,
) -> i32 {
    guard(operation, |args| {
        let group = args.group(group)?;
        work(args, CallGuard::new(group))
    })
}

/// Makes a collective call now; `prepare` checks its arguments and returns the job that makes it.
pub(crate) fn make<J: Job>(
    operation: &'static str,
    group: GroupHandle,
    prepare: impl FnOnce(&FfiArgs, &CallGuard) -> Result<J>,
) -> i32 {
    collective(operation, group, |args, call| {
        let job = prepare(args, &call)?;
        job(&call.disarm()).map(drop)
    })
}

/// Starts a collective call in the background, as [`make`] makes it.
pub(crate) fn start<J: Job>(
    operation: &'static str,
    group: GroupHandle,
    pending: *mut PendingHandle,
    prepare: impl FnOnce(&FfiArgs, &CallGuard) -> Result<J>,
) -> i32 {
    collective(operation, group, |args, call| {
        let out = args.out_param(pending, "a place for the handle")?;
        let job = prepare(args, &call)?;
        out.write(args.register_pending(call.disarm().start(job)));
        Ok(())
    })
}

/// Makes a collective call, and returns the buffer that it has filled.
pub(crate) trait Job: FnOnce(&Group) -> Result<CallerBuffer> + Send + 'static {}

impl<J: FnOnce(&Group) -> Result<CallerBuffer> + Send + 'static> Job for J {}

/// Creates the group of these members: ranks of `parent`, in the order of their new ranks. Every member calls this with
/// the same list.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_new(
    parent: GroupHandle,
    members: *const i32,
    count: usize,
    group: *mut GroupHandle,
) -> i32 {
    guard("group", |args| {
        let out = args.out_param(group, "a place for the handle")?;
        let parent = args.group(parent)?;
        let members = args.list(members, count, "the members")?;
        let members = members.iter().map(|&member| args.rank(member)).collect::<Result<Vec<_>>>()?;
        let made = parent.subgroup(&members)?.ok_or_else(|| {
            let received = format!("members {members:?}, called by {}", parent.rank());
            args.usage_error("a call by members only", received, "leave the call out on the other ranks")
        })?;
        out.write(handles::register(made));
        Ok(())
    })
}

/// Creates one group for each color, its members ordered by key and then by rank. Every member of `parent` calls this.
/// A rank with a negative color is in no group: its handle becomes UNISONO_NO_GROUP.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_split(
    parent: GroupHandle,
    color: i64,
    key: i64,
    group: *mut GroupHandle,
) -> i32 {
    collective("split", parent, |args, call| {
        let out = args.out_param(group, "a place for the handle")?;
        let made = call.disarm().split(u64::try_from(color).ok(), key)?;
        out.write(made.map_or(UNISONO_NO_GROUP, handles::register));
        Ok(())
    })
}

/// Creates a handle of the same group whose calls time out after `seconds`.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_with_timeout(
    group: GroupHandle,
    seconds: f64,
    changed: *mut GroupHandle,
) -> i32 {
    guard("group_with_timeout", |args| {
        let out = args.out_param(changed, "a place for the handle")?;
        let group = args.group(group)?.with_timeout(args.seconds(seconds)?);
        out.write(handles::register(group));
        Ok(())
    })
}

/// Creates a handle of the same group whose reductions give the same bits on every transport.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_deterministic(group: GroupHandle, changed: *mut GroupHandle) -> i32 {
    guard("group_deterministic", |args| {
        let out = args.out_param(changed, "a place for the handle")?;
        out.write(handles::register(args.group(group)?.deterministic(true)));
        Ok(())
    })
}

/// This process's rank in the group.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_rank(group: GroupHandle, rank: *mut i32) -> i32 {
    guard("group_rank", |args| {
        args.out_param(rank, "a place for the result")?.write(args.group(group)?.rank() as i32);
        Ok(())
    })
}

/// The number of ranks in the group.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_size(group: GroupHandle, size: *mut i32) -> i32 {
    guard("group_size", |args| {
        args.out_param(size, "a place for the result")?.write(args.group(group)?.size() as i32);
        Ok(())
    })
}

/// Frees a handle that one of the functions above created.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_group_free(group: GroupHandle) -> i32 {
    guard("group_free", |args| args.free::<Group>(group))
}
