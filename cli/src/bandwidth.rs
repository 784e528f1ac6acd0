//! Memory bandwidth kernels: a copy and `y += x`, the two inner loops of collectives, plus row gather and scatter-add.

/// A kernel over two buffers of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryKernel {
    Copy,
    Add,
}

impl MemoryKernel {
    pub(crate) const BOTH: [MemoryKernel; 2] = [MemoryKernel::Copy, MemoryKernel::Add];

    pub(crate) fn name(self) -> &'static str {
        match self {
            MemoryKernel::Copy => "copy",
            MemoryKernel::Add => "y += x",
        }
    }

    /// Bytes of memory traffic (read and written) per byte of one buffer.
    pub(crate) fn traffic(self) -> f64 {
        match self {
            MemoryKernel::Copy => 2.0,
            MemoryKernel::Add => 3.0,
        }
    }

    pub(crate) fn run(self, y: &mut [f32], x: &[f32]) {
        match self {
            MemoryKernel::Copy => y.copy_from_slice(x),
            MemoryKernel::Add => add(y, x),
        }
    }
}

fn add(y: &mut [f32], x: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just detected.
        return unsafe { add_avx2(y, x) };
    }
    add_any(y, x);
}

/// The same loop, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn add_avx2(y: &mut [f32], x: &[f32]) {
    add_any(y, x);
}

#[inline(always)]
fn add_any(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

/// Gathers the listed rows of a matrix into `out`, in list order.
pub(crate) fn gather(out: &mut [f32], matrix: &[f32], columns: usize, list: &[i64]) {
    for (out, &row) in out.chunks_exact_mut(columns).zip(list) {
        out.copy_from_slice(&matrix[row as usize * columns..][..columns]);
    }
}

/// Adds row i of `delta` to the i-th listed row of a matrix.
pub(crate) fn scatter_add(matrix: &mut [f32], delta: &[f32], columns: usize, list: &[i64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just detected.
        return unsafe { scatter_add_avx2(matrix, delta, columns, list) };
    }
    scatter_add_any(matrix, delta, columns, list);
}

/// The same loop, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn scatter_add_avx2(matrix: &mut [f32], delta: &[f32], columns: usize, list: &[i64]) {
    scatter_add_any(matrix, delta, columns, list);
}

#[inline(always)]
fn scatter_add_any(matrix: &mut [f32], delta: &[f32], columns: usize, list: &[i64]) {
    for (delta, &row) in delta.chunks_exact(columns).zip(list) {
        add_any(&mut matrix[row as usize * columns..][..columns], delta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_do_what_they_say() {
        let x: Vec<f32> = (0..1003).map(|i| i as f32).collect();
        let mut y = vec![1.0; x.len()];
        MemoryKernel::Add.run(&mut y, &x);
        assert!(y.iter().zip(&x).all(|(y, x)| *y == x + 1.0));
        MemoryKernel::Copy.run(&mut y, &x);
        assert_eq!(y, x);
    }

    #[test]
    fn rows_are_gathered_and_added_to_where_they_are() {
        let (columns, list) = (3, [4, 0, 4]);
        let mut matrix = vec![0.0; 5 * columns];
        let delta: Vec<f32> = (1..=9).map(|i| i as f32).collect();
        scatter_add(&mut matrix, &delta, columns, &list);
        assert_eq!(matrix[12..], [8.0, 10.0, 12.0]);
        let mut out = vec![0.0; 9];
        gather(&mut out, &matrix, columns, &list);
        assert_eq!(out, [8.0, 10.0, 12.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0]);
    }
}
