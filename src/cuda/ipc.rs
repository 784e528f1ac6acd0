//! Device memory of one process, at an address of another: handles to show, and a book of those that were opened.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::context::Context;
use super::device::Device;
use super::driver::IpcHandle;
use super::mapping_cache::{Allocation, MappingCache};
use super::span::Span;
use crate::error::{Error, Result};

/// Peers' devices may be reached through the handle as well.
const LAZY_PEER_ACCESS: u32 = 1;

/// A number that no two allocations of a process share, ever.
const BUFFER_ID: c_int = 7;

/// How many of its exported allocations a process looks at in each call, to notice those that it has freed.
const SWEEP_PER_CALL: usize = 4;

/// How many exported allocations a process remembers.
const MAX_EXPORTS: usize = 1024;

/// Bytes of device memory as other processes of the host can reach them. Plain data, to be sent to them.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Exported {
    /// The driver's handle to the whole allocation.
    handle: [u8; 64],
    /// Where the allocation begins in its owner's process, its bytes, and its number there.
    base: u64,
    length: u64,
    buffer: u64,
    /// Where the exported bytes begin in their owner's process.
    address: u64,
    /// How often the owner has noticed that exported memory was freed: others then close what they need no more.
    freed: u64,
}

impl Exported {
    /// Bytes that only this process can reach.
    pub fn local(span: &Span) -> Exported {
        Exported { address: span.address(), ..Exported::zeroed() }
    }

    /// Where the bytes are in their owner's process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether they begin there.
    pub fn is_at(&self, address: u64) -> bool {
        self.address == address
    }
}

/// The allocations that this process has exported.
#[derive(Default)]
struct ExportTable {
    handles: HashMap<u64, [u8; 64]>,
    /// Their numbers and where they begin, in the order in which they are looked at.
    queue: VecDeque<(u64, u64)>,
    freed: u64,
}

impl ExportTable {
    /// Looks at some of the allocations, and forgets those that are gone; `number_at` gives the number of what is at an address.
    fn sweep(&mut self, number_at: impl Fn(u64) -> Option<u64>) {
        for _ in 0..SWEEP_PER_CALL.min(self.queue.len()) {
            let Some((buffer, base)) = self.queue.pop_front() else { return };
            if number_at(base) == Some(buffer) && self.queue.len() < MAX_EXPORTS {
                self.queue.push_back((buffer, base));
            } else {
                self.handles.remove(&buffer);
                self.freed += 1;
            }
        }
    }
}

/// Shows bytes to other processes of this host. Fails where the driver cannot: memory of a pool, of virtual addresses
/// (torch's expandable segments), or managed memory.
pub(crate) fn export(device: &Arc<Device>, span: &Span) -> Result<Exported> {
    static EXPORTS: Mutex<Option<ExportTable>> = Mutex::new(None);
    let context = device.context;
    let (_entered, functions) = (context.enter()?, &context.driver.functions);
    let say =
        || format!("{} bytes at {:#x} cannot be shown to other processes", span.bytes(), span.address());
    let check = |code| context.driver.check(code, "CUDA memory", say);
    let number_at = |address: u64| {
        let mut number = 0u64;
        // SAFETY: writes a number of this size; the driver looks the address up in its own book.
        let code = unsafe { (functions.pointer_attribute)((&raw mut number).cast(), BUFFER_ID, address) };
        check(code).map(|()| number)
    };
    let (mut base, mut length) = (0, 0);
    // SAFETY: writes two numbers of these sizes.
    check(unsafe { (functions.memory_range)(&mut base, &mut length, span.address()) })?;
    let buffer = number_at(span.address())?;
    let mut exports = EXPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let exports = exports.get_or_insert_default();
    exports.sweep(|address| number_at(address).ok());
    let handle = match exports.handles.get(&buffer) {
        Some(handle) => *handle,
        None => {
            let mut handle = IpcHandle([0; 64]);
            // SAFETY: writes one handle.
            check(unsafe { (functions.ipc_export)(&mut handle, base) })?;
            exports.handles.insert(buffer, handle.0);
            exports.queue.push_back((buffer, base));
            handle.0
        }
    };
    let freed = exports.freed;
    Ok(Exported { handle, base, length: length as u64, buffer, address: span.address(), freed })
}

/// Another process's allocation at an address of this one, closed when dropped.
pub(crate) struct Mapped {
    context: Context,
    base: u64,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: opened in `open`; nobody has the address any more.
            unsafe { (self.context.driver.functions.ipc_close)(self.base) };
        }
    }
}

/// What is open in this process.
static OPEN: Mutex<MappingCache<Mapped>> = Mutex::new(MappingCache::EMPTY);

fn mappings() -> MutexGuard<'static, MappingCache<Mapped>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets go of what another process exported and will not use again: its memory stays taken as long as it is open here.
pub(crate) fn release_mapping(mapped: &Arc<Mapped>) {
    mappings().release(mapped);
}

/// Lets go of all that a process exported, which has ended.
pub(crate) fn release_process(owner: u64) {
    mappings().release_owner(owner);
}

/// Opens what another process (`owner`, a number of its own) exported; the address holds as long as the result lives.
/// What is opened once stays open for the next time, until its owner frees memory or shows something else in its place.
pub(crate) fn open(device: &Arc<Device>, owner: u64, exported: &Exported) -> Result<(u64, Arc<Mapped>)> {
    let offset = exported.address.wrapping_sub(exported.base);
    if offset > exported.length {
        return Err(Error::internal("CUDA memory", "an exported address lies outside its allocation"));
    }
    let end = exported.base.saturating_add(exported.length);
    let wanted = Allocation {
        ordinal: device.ordinal(),
        owner,
        buffer: exported.buffer,
        range: exported.base..end,
        freed: exported.freed,
    };
    let mapped = mappings().get(wanted, || {
        let context = device.context;
        let _entered = context.enter()?;
        let mut base = 0;
        let handle = IpcHandle(exported.handle);
        // SAFETY: writes one address; the driver checks the handle.
        let code = unsafe { (context.driver.functions.ipc_open)(&mut base, handle, LAZY_PEER_ACCESS) };
        context.driver.check(code, "CUDA memory", || "memory of another process cannot be opened".into())?;
        Ok(Mapped { context, base })
    })?;
    Ok((mapped.base + offset, mapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_allocations_are_noticed_a_few_in_each_call() {
        let mut exports = ExportTable::default();
        for buffer in 1..=10 {
            exports.handles.insert(buffer, [0; 64]);
            exports.queue.push_back((buffer, 1000 * buffer));
        }
        // Number 3 is gone; at the place of number 9 is another allocation.
        let number_at = |address: u64| match address / 1000 {
            3 => None,
            9 => Some(99),
            number => Some(number),
        };
        (0..3).for_each(|_| exports.sweep(number_at));
        assert_eq!((exports.freed, exports.handles.len(), exports.queue.len()), (2, 8, 8));
        (0..3).for_each(|_| exports.sweep(number_at));
        assert_eq!(exports.freed, 2);
    }
}
