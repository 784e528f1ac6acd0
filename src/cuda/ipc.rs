//! Device memory of one process, at an address of another: handles to show, and a book of those that were opened.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};

use super::context::Context;
use super::device::Device;
use super::driver::IpcHandle;
use super::span::Span;
use crate::error::{Error, Result};

/// Peers' devices may be reached through the handle as well.
const LAZY_PEER_ACCESS: u32 = 1;

/// A number that no two allocations of a process share, ever.
const BUFFER_ID: c_int = 7;

/// How many allocations of others stay open; torch's allocator makes few, large ones.
const MOST_OPEN: usize = 64;

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
}

impl Exported {
    /// Bytes that only this process can reach.
    pub fn here(span: &Span) -> Exported {
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

/// Shows bytes to other processes of this host. Fails where the driver cannot: memory of a pool, of virtual addresses
/// (torch's expandable segments), or managed memory.
pub(crate) fn export(device: &Arc<Device>, span: &Span) -> Result<Exported> {
    static KNOWN: Mutex<Option<HashMap<u64, [u8; 64]>>> = Mutex::new(None);
    let context = device.context;
    let (_entered, functions) = (context.enter()?, &context.driver.functions);
    let say =
        || format!("{} bytes at {:#x} cannot be shown to other processes", span.bytes(), span.address());
    let check = |code| context.driver.check(code, "CUDA memory", say);
    let (mut base, mut length, mut buffer) = (0, 0, 0u64);
    // SAFETY: each call writes numbers of these sizes; the driver looks the address up in its own book.
    unsafe {
        check((functions.memory_range)(&mut base, &mut length, span.address()))?;
        check((functions.pointer_attribute)((&raw mut buffer).cast(), BUFFER_ID, span.address()))?;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let handle = match known.get(&buffer) {
        Some(handle) => *handle,
        None => {
            let mut handle = IpcHandle([0; 64]);
            // SAFETY: writes one handle.
            check(unsafe { (functions.ipc_export)(&mut handle, base) })?;
            if known.len() >= 16 * MOST_OPEN {
                known.clear();
            }
            known.insert(buffer, handle.0);
            handle.0
        }
    };
    Ok(Exported { handle, base, length: length as u64, buffer, address: span.address() })
}

/// Another process's allocation at an address of this one, closed when dropped.
pub(crate) struct Mapped {
    context: Context,
    base: u64,
    owner: u64,
    theirs: (u64, u64),
    buffer: u64,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: opened in `open`; nobody has the address any more.
            unsafe { (self.context.driver.functions.ipc_close)(self.base) };
        }
    }
}

/// What is open, by device; the last one used comes last.
static OPEN: Mutex<Vec<(u32, Arc<Mapped>)>> = Mutex::new(Vec::new());

/// Lets go of what another process exported and will not use again: its memory stays taken as long as it is open here.
pub(crate) fn forget(mapped: &Arc<Mapped>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, other)| !Arc::ptr_eq(mapped, other));
}

/// Opens what another process (`owner`, a number of its own) exported; the address holds as long as the result lives.
/// What is opened once stays open for the next time, until its owner shows something else in its place.
pub(crate) fn open(device: &Arc<Device>, owner: u64, exported: &Exported) -> Result<(u64, Arc<Mapped>)> {
    let offset = exported.address.wrapping_sub(exported.base);
    if offset > exported.length {
        return Err(Error::internal("CUDA memory", "an exported address lies outside its allocation"));
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |(ordinal, mapped): &(u32, Arc<Mapped>)| {
        (*ordinal, mapped.owner, mapped.buffer) == (device.ordinal(), owner, exported.buffer)
    };
    if let Some(at) = open.iter().position(is_it) {
        // The last one used is the last to go.
        let known = open.remove(at);
        open.push(known.clone());
        return Ok((known.1.base + offset, known.1));
    }
    // What lay at the same place in the owner's process is gone there.
    let end = exported.base + exported.length;
    // The driver opens an allocation once for each device of this process.
    open.retain(|(_, mapped)| {
        let (base, length) = mapped.theirs;
        let is_same = mapped.buffer == exported.buffer;
        mapped.owner != owner || is_same || base + length <= exported.base || end <= base
    });
    if open.len() >= MOST_OPEN {
        open.remove(0);
    }
    let context = device.context;
    let _entered = context.enter()?;
    let mut base = 0;
    let handle = IpcHandle(exported.handle);
    // SAFETY: writes one address; the driver checks the handle.
    let code = unsafe { (context.driver.functions.ipc_open)(&mut base, handle, LAZY_PEER_ACCESS) };
    context.driver.check(code, "CUDA memory", || "memory of another process cannot be opened".into())?;
    let theirs = (exported.base, exported.length);
    let mapped = Arc::new(Mapped { context, base, owner, theirs, buffer: exported.buffer });
    open.push((device.ordinal(), mapped.clone()));
    Ok((base + offset, mapped))
}
