//! The two kernels of the collectives: one folds buffers, the other copies memory.

use std::sync::Arc;

use crate::cuda::{Argument, Device, Kernel, KernelSource, Stream};
use crate::error::Result;
use crate::memory::{DType, ReduceOp};

const FOLD: KernelSource = KernelSource {
    name: "fold.cu",
    code: concat!(include_str!("../../cuda/halves.cu"), include_str!("fold.cu")),
};
const COPY: KernelSource = KernelSource { name: "copy.cu", code: include_str!("copy.cu") };

/// The most buffers that one launch folds, and the most destinations: what fits into a launch's arguments.
pub(super) const MAX_BUFFERS: usize = 128;

/// The most copies in one launch.
const MAX_COPIES: usize = 64;

const THREADS: u32 = 256;

/// Loads in flight per thread.
const LOADS: usize = 8;

/// A copy of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceCopy {
    pub from: u64,
    pub to: u64,
    pub bytes: usize,
}

/// The macros with which the fold is compiled for these buffers, and its unroll factor.
fn fold_macros(dtype: DType, operation: ReduceOp, vector: usize, sources: usize) -> (Vec<String>, usize) {
    let kind = match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I8 => "i8",
        DType::U8 => "u8",
        DType::I32 => "i32",
        DType::I64 => "i64",
        _ => unreachable!("folds of {dtype} go through host memory"),
    };
    let (unrolled, unroll) =
        if sources <= LOADS { (sources, LOADS / sources.next_power_of_two()) } else { (0, 1) };
    let macros = vec![
        format!("TYPE={kind}"),
        format!("OPERATION={operation}"),
        format!("VECTOR={vector}"),
        format!("SOURCES={unrolled}"),
        format!("UNROLL={unroll}"),
        format!("MOST={MAX_BUFFERS}"),
    ];
    (macros, unroll)
}

/// The bytes of the widest load to which all addresses are aligned.
fn widest(addresses: impl Iterator<Item = u64>, dtype: DType) -> usize {
    let all = addresses.fold(16, |all, address| all | address);
    (1usize << all.trailing_zeros().min(4)).max(dtype.size())
}

/// The kernel that folds these buffers.
fn fold_kernel(
    device: &Device,
    (dtype, operation): (DType, ReduceOp),
    from: &[u64],
    to: &[u64],
) -> Result<(Kernel, usize, usize)> {
    let vector = widest(from.iter().chain(to).copied(), dtype);
    let (macros, unroll) = fold_macros(dtype, operation, vector, from.len());
    let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
    Ok((device.kernel_with(&FOLD, &macros, "fold")?, vector, unroll))
}

fn copy_kernel(device: &Device) -> Result<Kernel> {
    device.kernel_with(&COPY, &[&format!("MOST={MAX_COPIES}")], "copy")
}

/// Compiles the kernels for these folds and copies, so that launching is quick afterwards.
pub(super) fn compile<'a>(
    device: &Device,
    copies: bool,
    mut folds: impl Iterator<Item = ((DType, ReduceOp), &'a Vec<u64>, &'a Vec<u64>)>,
) -> Result<()> {
    folds.try_for_each(|(kind, from, to)| fold_kernel(device, kind, from, to).map(drop))?;
    if copies { copy_kernel(device).map(drop) } else { Ok(()) }
}

/// Folds `count` elements of the buffers in `from`, in that order, and writes the result to each of `to`.
///
/// # Safety
/// Every address is valid for `count` elements on this device until the stream was waited for, and aligned to an element; a
/// destination may be one of the sources, but must not partially overlap one.
pub(super) unsafe fn fold(
    (device, stream): (&Arc<Device>, &Stream),
    kind: (DType, ReduceOp),
    count: usize,
    from: &[u64],
    to: &[u64],
) -> Result<()> {
    assert!(!from.is_empty() && from.len() <= MAX_BUFFERS && to.len() <= MAX_BUFFERS);
    if count == 0 {
        return Ok(());
    }
    let (kernel, vector, unroll) = fold_kernel(device, kind, from, to)?;
    let mut buffers = [0u64; 2 * MAX_BUFFERS];
    buffers[..from.len()].copy_from_slice(from);
    buffers[MAX_BUFFERS..][..to.len()].copy_from_slice(to);
    let packs = (count * kind.0.size()).div_ceil(vector);
    let blocks = packs.div_ceil(THREADS as usize * unroll) as u32;
    let arguments = [
        Argument::Bytes(bytemuck::cast_slice(&buffers)),
        Argument::U32(from.len() as u32),
        Argument::U32(to.len() as u32),
        Argument::U64(count as u64),
    ];
    // SAFETY: the arguments match the kernel's parameters; the caller vouches for the addresses.
    unsafe { kernel.launch(stream, blocks, THREADS, &arguments) }
}

/// Copies memory on this device.
///
/// # Safety
/// Every piece is valid until the stream was waited for, and no destination overlaps anything else.
pub(super) unsafe fn copy((device, stream): (&Arc<Device>, &Stream), pieces: &[DeviceCopy]) -> Result<()> {
    for pieces in pieces.chunks(MAX_COPIES) {
        let longest = pieces.iter().map(|piece| piece.bytes).max().unwrap_or(0);
        let kernel = copy_kernel(device)?;
        let mut copies = [[0u64; MAX_COPIES]; 3];
        for (at, piece) in pieces.iter().enumerate() {
            (copies[0][at], copies[1][at], copies[2][at]) = (piece.from, piece.to, piece.bytes as u64);
        }
        // Each thread copies four times sixteen bytes if there is enough work.
        let wanted = longest.div_ceil(4 * 16 * THREADS as usize).max(1) as u32;
        let blocks = wanted.min(16 * device.multiprocessors());
        let arguments = [Argument::Bytes(bytemuck::cast_slice(copies.as_flattened()))];
        // SAFETY: the argument matches the kernel's parameter; the caller vouches for the pieces.
        unsafe { kernel.launch_grid(stream, (blocks, pieces.len() as u32), THREADS, &arguments)? };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::compiler::compiles;

    #[test]
    fn loads_are_as_wide_as_the_addresses_allow() {
        assert_eq!(widest([256, 512].into_iter(), DType::U8), 16);
        assert_eq!(widest([256, 264].into_iter(), DType::F32), 8);
        assert_eq!(widest([256, 260].into_iter(), DType::F32), 4);
        assert_eq!(widest([256, 257].into_iter(), DType::U8), 1);
        assert_eq!(widest(std::iter::empty(), DType::F64), 16);
    }

    #[test]
    fn every_fold_compiles() {
        for dtype in DType::KERNELS {
            for operation in ReduceOp::ALL.into_iter().filter(|operation| operation.has_kernels()) {
                let single = (operation == ReduceOp::Sum).then_some((dtype.size(), MAX_BUFFERS));
                for (vector, sources) in std::iter::once((16, 2)).chain(single) {
                    let (macros, _) = fold_macros(dtype, operation, vector, sources);
                    let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
                    if !compiles(&FOLD, &macros) {
                        return;
                    }
                }
            }
        }
    }

    #[test]
    fn the_copy_compiles() {
        compiles(&COPY, &["MOST=64"]);
    }
}
