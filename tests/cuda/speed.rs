//! Times of collectives on one device, next to the copies that bound them from below.

use std::time::Instant;

use unisono::cuda::{Device, PinnedMemory};
use unisono::{DType, Group, ReduceOp};

use super::buffer::Buffer;

const BYTES: usize = 100_000_000;

/// The minimum and the median of many runs, in microseconds.
fn times(rounds: usize, mut body: impl FnMut()) -> (f64, f64) {
    let mut all: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            body();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    all.sort_by(f64::total_cmp);
    (all[0], all[rounds / 2])
}

pub fn measure(group: &Group) {
    let device = Device::get(0).unwrap();
    let path = group.raw().path(0).unwrap();
    let buffer = Buffer::of(&vec![0; BYTES], 0);
    let report = |what: &str, (fastest, median): (f64, f64)| {
        if group.rank() == 0 {
            println!("{path}: {what}: fastest {fastest:.1} us, median {median:.1} us");
        }
    };
    for (what, bytes) in [("4 KB", 4096), ("1 MB", 1 << 20), ("100 MB", BYTES)] {
        let span = buffer.span().part(0, bytes).unwrap();
        group.raw().all_reduce(span, DType::F32, ReduceOp::Sum).unwrap();
        let sum = || group.raw().all_reduce(span, DType::F32, ReduceOp::Sum).unwrap();
        report(&format!("all_reduce of {what}"), times(40, sum));
        let send = || group.raw().broadcast(span, DType::F32, 0).unwrap();
        report(&format!("broadcast of {what}"), times(40, send));
    }
    if group.rank() == 0 {
        let pinned = PinnedMemory::new(&device, BYTES).unwrap();
        let copy = |to: u64, from: u64| {
            // SAFETY: both have that length, and the copy is waited for.
            unsafe { device.stream().copy(to, from, BYTES).unwrap() };
            device.stream().wait(&|| Ok(())).unwrap();
        };
        let other = Buffer::of(&vec![0; BYTES], 0);
        report("copy on the device", times(20, || copy(other.span().address(), buffer.span().address())));
        report("copy to pinned memory", times(20, || copy(pinned.address(), buffer.span().address())));
        report("copy from pinned memory", times(20, || copy(buffer.span().address(), pinned.address())));
    }
    group.barrier().unwrap();
}
