//! Work on the samples of a batch, spread over the threads that a run may use.

/// Splits `outputs` into samples of `size` numbers and gives each thread some whole samples: the index of the first, and
/// their part. One thread means a plain call.
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

/// Sums over the samples of a batch: each thread adds up some of them in `length` numbers of its own, and these are
/// added to `total` in order.
pub(crate) fn sums<T: crate::Number>(
    threads: usize,
    count: usize,
    total: &mut [T],
    work: impl Fn(std::ops::Range<usize>, &mut [T]) + Sync,
) {
    let threads = threads.clamp(1, count.max(1));
    if threads == 1 {
        return work(0..count, total);
    }
    let each = count.div_ceil(threads);
    let parts: Vec<Vec<T>> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..count)
            .step_by(each)
            .map(|first| {
                let (work, length) = (&work, total.len());
                scope.spawn(move || {
                    let mut part = vec![T::ZERO; length];
                    work(first..(first + each).min(count), &mut part);
                    part
                })
            })
            .collect();
        started.into_iter().map(|thread| thread.join().expect("a thread of the engine ended well")).collect()
    });
    for part in parts {
        total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
    }
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
            let mut total = [1.0_f64];
            sums(threads, 5, &mut total, |range, total| total[0] += range.sum::<usize>() as f64);
            assert_eq!(total, [11.0]);
        }
    }
}
