//! Distributes work on the samples of a batch over the threads of a run.

use std::ops::Range;

use crate::tree::TreeSum;

/// Splits `outputs` into samples of `size` elements, and calls `work` on each thread with some complete samples: the index
/// of the first, and their part of `outputs`. With one thread, this is a plain call.
pub(crate) fn samples<T: Send>(
    threads: usize,
    outputs: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let count = outputs.len().checked_div(size).unwrap_or(0);
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        return work(0, outputs);
    }
    let each = count.div_ceil(threads);
    std::thread::scope(|scope| {
        for (part, outputs) in outputs.chunks_mut(each * size).enumerate() {
            let work = &work;
            scope.spawn(move || work(part * each, outputs));
        }
    });
}

/// A tree sum over some samples of a batch: each thread adds the terms of some of them to a tree of its own.
pub(crate) fn sums<T: crate::Number>(
    threads: usize,
    samples: Range<usize>,
    length: usize,
    work: impl Fn(Range<usize>, &mut TreeSum<T>) + Sync,
) -> TreeSum<T> {
    let mut total = TreeSum::new(length);
    let threads = threads.clamp(1, samples.len().max(1));
    if threads == 1 {
        work(samples, &mut total);
        return total;
    }
    let each = samples.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let started: Vec<_> = samples
            .clone()
            .step_by(each)
            .map(|first| {
                let (work, end) = (&work, samples.end);
                scope.spawn(move || {
                    let mut part = TreeSum::new(length);
                    work(first..(first + each).min(end), &mut part);
                    part
                })
            })
            .collect();
        for thread in started {
            total.append(thread.join().expect("a thread of the engine ended well"));
        }
    });
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_done_once_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let mut outputs = vec![0; 5 * 3];
            samples(threads, &mut outputs, 3, |first, part| {
                for (sample, values) in part.chunks_mut(3).enumerate() {
                    values.iter_mut().for_each(|value| *value += first + sample + 1);
                }
            });
            assert_eq!(outputs, [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]);
            let total = sums(threads, 2..7, 1, |samples, tree| {
                samples.for_each(|sample| tree.push(sample, vec![sample as f64]));
            });
            assert_eq!(total.total(), [20.0]);
        }
    }
}
