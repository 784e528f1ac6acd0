//! Convolution in single precision with stride one, straight from the image: no gathered columns, eight places at a time.
//!
//! A tile of outputs, four maps by three rows by eight columns, stays in registers while all inputs that it needs pass by.
//! The error of the input is the same computation with the filters turned around. For processors with AVX2.

use crate::shape::{Shape, Window};

/// Columns that are computed together.
const LANES: usize = 8;
/// Output maps of a tile.
const MAPS: usize = 4;
/// Filter weights whose gradients are computed together, for each of `MAPS` maps.
const TAPS: usize = 3;

/// The sizes of a convolution. Images are copied into frames: with their padding, and rows long enough for whole tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Direct {
    input: Shape,
    maps: usize,
    kernel: [usize; 2],
    padding: [usize; 2],
    rows: usize,
    columns: usize,
    /// The columns, rounded up to whole lanes.
    wide: usize,
    /// How far rows of a frame are apart.
    stride: usize,
}

impl Direct {
    /// For this convolution, where the processor can and where it is worth it.
    pub(super) fn new(input: Shape, maps: usize, window: Window) -> Option<Direct> {
        let [rows, columns] = window.outputs(input)?;
        let wide = columns.next_multiple_of(LANES);
        if window.stride != [1, 1] || wide > 2 * columns || !supported() {
            return None;
        }
        let stride = wide + window.kernel[1] - 1;
        let Window { kernel, padding, .. } = window;
        Some(Direct { input, maps, kernel, padding, rows, columns, wide, stride })
    }

    /// The convolution that gives the error of the input from that of the output, where it does not cost much more.
    pub(super) fn backward(&self) -> Option<Direct> {
        let padding = [
            self.kernel[0].checked_sub(1 + self.padding[0])?,
            self.kernel[1].checked_sub(1 + self.padding[1])?,
        ];
        let output = Shape::new(self.maps, self.rows, self.columns);
        let window = Window { kernel: self.kernel, stride: [1, 1], padding };
        let back = Direct::new(output, self.input.maps, window)?;
        (back.rows * back.wide <= 3 * self.rows * self.columns).then_some(back)
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// How many numbers lie between maps of a frame.
    fn plane(&self) -> usize {
        (self.rows + self.kernel[0] - 1) * self.stride
    }

    /// How many numbers a frame has.
    pub(super) fn frame(&self) -> usize {
        self.input.maps * self.plane()
    }

    /// Copies an image into a frame whose border is zero already.
    pub(super) fn place(&self, image: &[f32], frame: &mut [f32]) {
        for (map, pixels) in image.chunks(self.input.area()).enumerate() {
            let start = map * self.plane() + self.padding[0] * self.stride + self.padding[1];
            for (row, pixels) in pixels.chunks(self.input.columns).enumerate() {
                frame[start + row * self.stride..][..pixels.len()].copy_from_slice(pixels);
            }
        }
    }

    /// The weights in the order that tiles read them. `weight` gives that of (output map, input map, place).
    pub(super) fn pack(&self, weight: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
        let mut packed = Vec::with_capacity(self.maps.next_multiple_of(MAPS) * self.input.maps * self.taps());
        for first in (0..self.maps).step_by(MAPS) {
            for input in 0..self.input.maps {
                for place in 0..self.taps() {
                    let one = |map: usize| if map < self.maps { weight(map, input, place) } else { 0.0 };
                    packed.extend((first..first + MAPS).map(one));
                }
            }
        }
        packed
    }

    /// The outputs of one image.
    pub(super) fn run(&self, frame: &[f32], packed: &[f32], bias: Option<&[f32]>, output: &mut [f32]) {
        assert!(frame.len() >= self.frame() && output.len() >= self.maps * self.rows * self.columns);
        assert!(packed.len() >= self.maps.next_multiple_of(MAPS) * self.input.maps * self.taps());
        assert!(bias.is_none_or(|bias| bias.len() >= self.maps));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `new` made sure that the processor has these instructions, and the sizes were checked.
        unsafe {
            self.run_tiles(frame, packed, bias, output);
        }
    }

    /// Rows of an error in whole lanes, as [`Direct::add_gradient`] wants them.
    pub(super) fn widen(&self, error: &[f32], widened: &mut [f32]) {
        for (row, wide) in error.chunks(self.columns).zip(widened.chunks_mut(self.wide)) {
            wide[..self.columns].copy_from_slice(row);
        }
    }

    /// How many numbers a widened error has.
    pub(super) fn widened(&self) -> usize {
        self.maps * self.rows * self.wide
    }

    /// Adds the gradient of the weights over some images: their frames and widened errors, one after the other.
    pub(super) fn add_gradient(&self, frames: &[f32], errors: &[f32], gradient: &mut [f32]) {
        let count = frames.len() / self.frame();
        assert!(errors.len() >= count * self.widened());
        assert!(gradient.len() >= self.maps * self.input.maps * self.taps());
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `new` made sure that the processor has these instructions, and the sizes were checked.
        unsafe {
            self.add_gradient_tiles(count, frames, errors, gradient);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn supported() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn supported() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
mod tiles {
    use std::arch::x86_64::{
        __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    use super::{Direct, LANES, MAPS, TAPS};

    impl Direct {
        /// # Safety
        /// The processor has AVX2 and FMA, and all slices have the sizes that [`Direct::run`] checks.
        #[target_feature(enable = "avx2,fma")]
        pub(super) unsafe fn run_tiles(
            &self,
            frame: &[f32],
            packed: &[f32],
            bias: Option<&[f32]>,
            output: &mut [f32],
        ) {
            let block = MAPS * self.input.maps * self.taps();
            for first in (0..self.maps).step_by(MAPS) {
                let weights = &packed[first / MAPS * block..][..block];
                let mut row = 0;
                while row < self.rows {
                    let count = (self.rows - row).min(3);
                    for column in (0..self.columns).step_by(LANES) {
                        let start = row * self.stride + column;
                        let mut place = |map: usize, down: usize, values: __m256| {
                            if first + map < self.maps {
                                let mut lanes = [0.0; LANES];
                                // SAFETY: the array has as many numbers as the register.
                                unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), values) };
                                let shift = bias.map_or(0.0, |bias| bias[first + map]);
                                let width = LANES.min(self.columns - column);
                                let at = ((first + map) * self.rows + row + down) * self.columns + column;
                                let output = &mut output[at..at + width];
                                output
                                    .iter_mut()
                                    .zip(lanes)
                                    .for_each(|(output, lane)| *output = lane + shift);
                            }
                        };
                        // SAFETY: the caller's promise, and rows from `row` on are inside.
                        unsafe {
                            match count {
                                3 => self.tile::<3>(&frame[start..], weights, &mut place),
                                2 => self.tile::<2>(&frame[start..], weights, &mut place),
                                _ => self.tile::<1>(&frame[start..], weights, &mut place),
                            }
                        }
                    }
                    row += count;
                }
            }
        }

        /// One tile of `ROWS` rows.
        ///
        /// # Safety
        /// The processor has AVX2 and FMA; `frame` begins at the tile and lies in a whole frame; `weights` is a block.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn tile<const ROWS: usize>(
            &self,
            frame: &[f32],
            weights: &[f32],
            place: &mut impl FnMut(usize, usize, __m256),
        ) {
            let mut sums = [[_mm256_setzero_ps(); ROWS]; MAPS];
            let mut weight = weights.as_ptr();
            for map in 0..self.input.maps {
                for row in 0..self.kernel[0] {
                    let start = map * self.plane() + row * self.stride;
                    for column in 0..self.kernel[1] {
                        // SAFETY: frames have room for whole lanes at every row and place of the filter, and the
                        // block has MAPS weights for each.
                        unsafe {
                            let mut seen = [_mm256_setzero_ps(); ROWS];
                            for (down, seen) in seen.iter_mut().enumerate() {
                                *seen =
                                    _mm256_loadu_ps(frame.as_ptr().add(start + down * self.stride + column));
                            }
                            for sums in &mut sums {
                                let one = _mm256_broadcast_ss(&*weight);
                                weight = weight.add(1);
                                for (sum, seen) in sums.iter_mut().zip(&seen) {
                                    *sum = _mm256_fmadd_ps(one, *seen, *sum);
                                }
                            }
                        }
                    }
                }
            }
            for (map, sums) in sums.iter().enumerate() {
                for (down, sum) in sums.iter().enumerate() {
                    place(map, down, *sum);
                }
            }
        }

        /// # Safety
        /// The processor has AVX2 and FMA, and all slices have the sizes that [`Direct::add_gradient`] checks.
        #[target_feature(enable = "avx2,fma")]
        pub(super) unsafe fn add_gradient_tiles(
            &self,
            count: usize,
            frames: &[f32],
            errors: &[f32],
            gradient: &mut [f32],
        ) {
            let taps = self.taps();
            for first in (0..self.maps).step_by(MAPS) {
                let maps: [usize; MAPS] = std::array::from_fn(|map| (first + map).min(self.maps - 1));
                for input in 0..self.input.maps {
                    for tap in (0..taps).step_by(TAPS) {
                        let offsets: [usize; TAPS] = std::array::from_fn(|next| {
                            let tap = (tap + next).min(taps - 1);
                            input * self.plane() + tap / self.kernel[1] * self.stride + tap % self.kernel[1]
                        });
                        // SAFETY: the caller's promise, and maps and taps are inside.
                        let sums = unsafe { self.correlate(count, frames, errors, maps, offsets) };
                        for (map, sums) in sums.iter().enumerate().take(self.maps - first) {
                            let at = ((first + map) * self.input.maps + input) * taps + tap;
                            let some = gradient[at..].iter_mut().zip(sums).take(taps - tap);
                            some.for_each(|(gradient, sum)| *gradient += sum);
                        }
                    }
                }
            }
        }

        /// For each of some maps and places of the filter, the sum of error times input over all images and outputs.
        ///
        /// # Safety
        /// The processor has AVX2 and FMA; the slices hold `count` images; maps and offsets are inside.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn correlate(
            &self,
            count: usize,
            frames: &[f32],
            errors: &[f32],
            maps: [usize; MAPS],
            offsets: [usize; TAPS],
        ) -> [[f32; TAPS]; MAPS] {
            let mut sums = [[_mm256_setzero_ps(); TAPS]; MAPS];
            for image in 0..count {
                for row in 0..self.rows {
                    for column in (0..self.wide).step_by(LANES) {
                        // SAFETY: widened errors have whole lanes in every row, and frames have room for whole lanes at
                        // every row and place of the filter.
                        unsafe {
                            let frame =
                                frames.as_ptr().add(image * self.frame() + row * self.stride + column);
                            let seen = offsets.map(|offset| _mm256_loadu_ps(frame.add(offset)));
                            for (sums, map) in sums.iter_mut().zip(maps) {
                                let at = ((image * self.maps + map) * self.rows + row) * self.wide + column;
                                let error = _mm256_loadu_ps(errors.as_ptr().add(at));
                                for (sum, seen) in sums.iter_mut().zip(&seen) {
                                    *sum = _mm256_fmadd_ps(error, *seen, *sum);
                                }
                            }
                        }
                    }
                }
            }
            sums.map(|sums| {
                sums.map(|sum| {
                    let mut lanes = [0.0_f32; LANES];
                    // SAFETY: the array has as many numbers as the register.
                    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
                    lanes.iter().sum()
                })
            })
        }
    }
}
