//! For C: memory that the ranks of a host share; collectives on it need no copy.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use unisono::ArenaBuffer;

use crate::errors::guard;
use crate::session;

/// The allocated buffers, by address.
type Buffers = BTreeMap<usize, ArenaBuffer>;
static BUFFERS: LazyLock<Mutex<Buffers>> = LazyLock::new(Mutex::default);

fn buffers() -> MutexGuard<'static, Buffers> {
    BUFFERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates memory that the ranks of this host share: collectives on it need no copy. It is aligned to 64 bytes and
/// uninitialised. It stays valid until it is freed, even after shutdown.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_memory_new(bytes: usize, memory: *mut *mut c_void) -> i32 {
    guard("memory_new", |args| {
        let out = args.out_param(memory, "a place for the address")?;
        let mut buffer = session::empty("memory_new", bytes)?;
        let address = buffer.as_mut_ptr();
        buffers().insert(address as usize, buffer);
        out.write(address.cast());
        Ok(())
    })
}

/// Frees memory of unisono_memory_new. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_memory_free(memory: *mut c_void) -> i32 {
    guard("memory_free", |args| {
        let found = memory.is_null() || buffers().remove(&(memory as usize)).is_some();
        match found {
            true => Ok(()),
            false => Err(args.usage_error(
                "an address that unisono_memory_new wrote",
                format!("{memory:p}"),
                "free it once, and other memory with free()",
            )),
        }
    })
}
