//! Kernels: CUDA C++ in a string, compiled at first use, and launched with plain arguments.

use std::ffi::{CString, c_void};

use super::context::Context;
use super::driver::Handle;
use super::stream::Stream;
use crate::error::{Error, Result};

/// CUDA C++ code with kernels in it, each declared `extern "C"`.
#[derive(Debug)]
pub struct KernelSource {
    /// The name of its file, which errors show; must be unique among sources.
    pub name: &'static str,
    /// The code. Multiplications and additions are never fused, so results equal those of the host.
    pub code: &'static str,
}

/// A kernel argument, passed by value, in the order of the parameters.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Argument<'a> {
    /// A pointer.
    Address(u64),
    U64(u64),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A struct by value; its bytes are aligned to 8.
    Bytes(&'a [u8]),
}

impl Argument<'_> {
    fn words(&self) -> Vec<u64> {
        match *self {
            Argument::Address(value) | Argument::U64(value) => vec![value],
            Argument::U32(value) => vec![u64::from_ne_bytes(padded(&value.to_ne_bytes()))],
            Argument::I64(value) => vec![value as u64],
            Argument::F32(value) => vec![u64::from_ne_bytes(padded(&value.to_ne_bytes()))],
            Argument::F64(value) => vec![value.to_bits()],
            Argument::Bytes(bytes) => {
                bytes.chunks(8).map(|chunk| u64::from_ne_bytes(padded(chunk))).collect()
            }
        }
    }
}

fn padded(bytes: &[u8]) -> [u8; 8] {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

/// A kernel that is loaded on its device; see [`Device::kernel`](super::Device::kernel).
#[derive(Clone, Copy)]
pub struct Kernel {
    context: Context,
    raw: Handle,
}

// SAFETY: a driver handle that any thread may use; code is never unloaded.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    pub(super) fn find(
        context: Context,
        module: Handle,
        source: &KernelSource,
        name: &str,
    ) -> Result<Kernel> {
        let text =
            CString::new(name).map_err(|_| Error::internal("CUDA kernel", "a name with a zero in it"))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is never unloaded, and the name is NUL-terminated.
        let code = unsafe { (context.driver.functions.module_function)(&mut raw, module, text.as_ptr()) };
        context.driver.check(code, "CUDA kernel", || format!("{} has no kernel {name}", source.name))?;
        Ok(Kernel { context, raw })
    }

    /// Launches `blocks` blocks of `threads` threads, in order with the stream's other work.
    ///
    /// # Safety
    /// The arguments have the kernel's parameter types, and the memory that it accesses stays valid and is accessed by
    /// nothing else until the stream was waited for.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        blocks: u32,
        threads: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.launch_grid(stream, (blocks, 1), threads, arguments) }
    }

    /// As [`Kernel::launch`], with a two-dimensional grid of blocks.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    pub unsafe fn launch_grid(
        &self,
        stream: &Stream,
        (blocks, rows): (u32, u32),
        threads: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        if blocks == 0 || rows == 0 {
            return Ok(());
        }
        let mut words: Vec<Vec<u64>> = arguments.iter().map(Argument::words).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        let _entered = self.context.enter()?;
        let driver = self.context.driver;
        let none = std::ptr::null_mut();
        // SAFETY: the driver copies the arguments before it returns; the caller vouches for them.
        let code = unsafe {
            let arguments = pointers.as_mut_ptr();
            (driver.functions.launch)(
                self.raw, blocks, rows, 1, threads, 1, 1, 0, stream.raw, arguments, none,
            )
        };
        driver.check(code, "CUDA kernel", || format!("{blocks} x {rows} blocks of {threads} threads"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_words_of_eight_bytes() {
        assert_eq!(Argument::U32(7).words(), [u64::from_ne_bytes([7, 0, 0, 0, 0, 0, 0, 0])]);
        assert_eq!(Argument::F64(1.5).words(), [1.5f64.to_bits()]);
        assert_eq!(Argument::Bytes(&[1; 12]).words().len(), 2);
    }
}
