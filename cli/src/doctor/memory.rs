//! Memory bandwidth of this machine, on one core and on all cores.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::report::{Mark, ReportSection};
use crate::bandwidth::MemoryKernel;

/// Larger than the caches of most machines, small enough to initialise quickly.
const ELEMENTS: usize = 8 << 20;
/// Upper bound on the total size of all buffers, in bytes.
const MAX_TOTAL_BYTES: usize = 1 << 30;
/// Time limit for each of the four measurements.
const LIMIT: Duration = Duration::from_millis(250);

pub(super) fn bandwidth() -> ReportSection {
    let mut section = ReportSection::new("Memory bandwidth (bytes read and written)");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for kernel in MemoryKernel::BOTH {
        let one = measure(kernel, 1);
        let all = if cores > 1 { measure(kernel, cores) } else { one };
        let text = format!("{:.1} GB/s on 1 core, {:.1} GB/s on {cores}", one / 1e9, all / 1e9);
        section.add(Mark::Fact, kernel.name(), text);
    }
    section
}

/// The best bandwidth of several rounds in which all threads start together, in bytes per second.
fn measure(kernel: MemoryKernel, threads: usize) -> f64 {
    let elements = ELEMENTS.min(MAX_TOTAL_BYTES / (2 * size_of::<f32>() * threads));
    let (barrier, late) = (Barrier::new(threads), AtomicBool::new(false));
    let begin = Instant::now();
    let work = || {
        let (mut y, x) = (vec![1.0f32; elements], vec![1.0f32; elements]);
        let mut rounds = Vec::new();
        while !late.load(Ordering::Relaxed) {
            barrier.wait();
            let start = begin.elapsed();
            kernel.run(std::hint::black_box(&mut y), std::hint::black_box(&x));
            rounds.push((start, begin.elapsed()));
            // One thread decides for all whether there is another round, before any thread reads the flag.
            if barrier.wait().is_leader() {
                late.store(begin.elapsed() > LIMIT, Ordering::Relaxed);
            }
            barrier.wait();
        }
        rounds
    };
    let threads_rounds: Vec<Vec<(Duration, Duration)>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let fastest = (0..threads_rounds[0].len()).map(|round| {
        let times = threads_rounds.iter().map(|rounds| rounds[round]);
        let (start, end) = times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default();
        (end - start).as_secs_f64()
    });
    let bytes = kernel.traffic() * (threads * elements * size_of::<f32>()) as f64;
    bytes / fastest.fold(f64::INFINITY, f64::min)
}
