//! CUDA IPC: device memory of one process at an address of another. Exported handles, and the mappings that are open.

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

/// Devices that are peers of the exporting one may be reached through the handle as well.
const LAZY_PEER_ACCESS: u32 = 1;

/// The driver's unique id of an allocation: never reused within a process.
const BUFFER_ID: c_int = 7;

/// The number of exported allocations that are checked in each call, to detect those that were freed.
const SWEEP_PER_CALL: usize = 4;

/// The most exported allocations that are remembered.
const MAX_EXPORTS: usize = 1024;

/// Bytes of device memory as other processes of the host can open them. Plain data, to be sent to them.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Exported {
    /// The driver's handle to the entire allocation.
    handle: [u8; 64],
    /// The allocation's address in its owner's process, its length in bytes, and its id there.
    base: u64,
    length: u64,
    buffer: u64,
    /// Address of the exported bytes in their owner's process.
    address: u64,
    /// How often the owner has detected that exported memory was freed: other processes then close what they no longer need.
    freed: u64,
}

impl Exported {
    /// Bytes that only this process can access.
    pub fn local(span: &Span) -> Exported {
        Exported { address: span.address(), ..Exported::zeroed() }
    }

    /// Address of the bytes in their owner's process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether the bytes begin at this address.
    pub fn is_at(&self, address: u64) -> bool {
        self.address == address
    }
}

/// The allocations that this process has exported.
#[derive(Default)]
struct ExportTable {
    handles: HashMap<u64, [u8; 64]>,
    /// Their ids and addresses, in the order in which they are checked.
    queue: VecDeque<(u64, u64)>,
    freed: u64,
}

impl ExportTable {
    /// Checks some of the allocations and drops those that were freed; `number_at` returns the id of the allocation at an
    /// address.
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

/// Exports bytes to other processes of this host. Fails if the driver does not support it: memory of a pool, of virtual
/// addresses (PyTorch's expandable segments), or managed memory.
pub(crate) fn export(device: &Arc<Device>, span: &Span) -> Result<Exported> {
    static EXPORTS: Mutex<Option<ExportTable>> = Mutex::new(None);
    let context = device.context;
    let (_entered, functions) = (context.enter()?, &context.driver.functions);
    let say =
        || format!("{} bytes at {:#x} cannot be shown to other processes", span.bytes(), span.address());
    let check = |code| context.driver.check(code, "CUDA memory", say);
    let number_at = |address: u64| {
        let mut number = 0u64;
        // SAFETY: writes a number of this size; the driver only looks the address up.
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

/// Another process's allocation, mapped in this one; closed when dropped.
pub(crate) struct Mapped {
    context: Context,
    base: u64,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: opened in `open`; nothing uses the address any more.
            unsafe { (self.context.driver.functions.ipc_close)(self.base) };
        }
    }
}

/// The mappings that are open in this process.
static OPEN: Mutex<MappingCache<Mapped>> = Mutex::new(MappingCache::EMPTY);

fn mappings() -> MutexGuard<'static, MappingCache<Mapped>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Releases memory that another process exported and will not use again: it is not freed as long as it is open here.
pub(crate) fn release_mapping(mapped: &Arc<Mapped>) {
    mappings().release(mapped);
}

/// Releases everything that a process exported, which has ended.
pub(crate) fn release_process(owner: u64) {
    mappings().release_owner(owner);
}

/// Opens what another process (`owner`, its identifier) exported; the address is valid as long as the result lives. A
/// mapping stays open for the next time, until its owner frees memory or exports other memory in its place.
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
        // SAFETY: writes one address; the driver validates the handle.
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
        // Allocation 3 was freed; another allocation has taken the address of number 9.
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
