//! A window in one dimension: which inputs each output of a convolution or pooling needs.

use std::ops::Range;

use crate::error::{Error, Result};

/// Kernel, stride, dilation and padding in one dimension; an array has one for each of its dimensions.
///
/// ```
/// use unisono::halo::Window;
/// let convolution = Window { kernel: 7, stride: 2, padding: (3, 3), ..Window::IDENTITY };
/// assert_eq!(convolution.outputs(224)?, 112);
/// assert_eq!(convolution.needed(56..112), 109..226); // two of them are padding
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// The number of inputs of an output.
    pub kernel: usize,
    /// The distance between adjacent windows.
    pub stride: usize,
    /// The distance between adjacent inputs of one window.
    pub dilation: usize,
    /// Positions before the first and after the last input; the boundary defines their values.
    pub padding: (usize, usize),
    /// Whether inputs and outputs are exchanged, as in a transposed convolution: every input contributes to `kernel` outputs
    /// that are `dilation` apart, shifted by `stride` for each input, and `padding` outputs are cropped at the ends.
    pub transposed: bool,
    /// Additional outputs after the last one, of a transposed window.
    pub output_padding: usize,
    /// Whether a last window counts that begins inside and ends outside the inputs.
    pub ceil: bool,
}

impl Window {
    /// Every output depends on the input of the same index: for batches, channels and pointwise operations.
    pub const IDENTITY: Window = Window {
        kernel: 1,
        stride: 1,
        dilation: 1,
        padding: (0, 0),
        transposed: false,
        output_padding: 0,
        ceil: false,
    };

    /// The distance from the first to the last input of a window, both included.
    fn span(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    fn validate(&self) -> Result<()> {
        let reject = |expected: &str, received: String| {
            Err(Error::usage("window", expected, received, "correct the window of this dimension"))
        };
        if self.kernel == 0 || self.stride == 0 || self.dilation == 0 {
            let received =
                format!("kernel {}, stride {}, dilation {}", self.kernel, self.stride, self.dilation);
            return reject("kernel, stride and dilation of 1 or more", received);
        }
        if !self.transposed && self.output_padding > 0 {
            return reject("output_padding for transposed windows only", self.output_padding.to_string());
        }
        if self.transposed && self.ceil {
            return reject("no ceil mode for a transposed window", "both".into());
        }
        if self.transposed && self.output_padding >= self.stride.max(self.dilation) {
            let expected = "an output_padding below the stride or the dilation";
            return reject(expected, format!("{} with stride {}", self.output_padding, self.stride));
        }
        Ok(())
    }

    /// The number of outputs for this number of inputs.
    pub fn outputs(&self, inputs: usize) -> Result<usize> {
        self.validate()?;
        let (before, after) = self.padding;
        let too_large = |domain: String| {
            let expected = format!("a window within {domain}");
            let received =
                format!("one of {} (kernel {}, dilation {})", self.span(), self.kernel, self.dilation);
            Err(Error::usage("window", expected, received, "use a smaller kernel or more padding"))
        };
        if self.transposed {
            if inputs == 0 {
                return Ok(0);
            }
            let all = (inputs - 1) * self.stride + self.span() + self.output_padding;
            return match all.checked_sub(before + after) {
                Some(outputs) => Ok(outputs),
                None => too_large(format!("{all} outputs, of which {} are cut off", before + after)),
            };
        }
        let Some(room) = (inputs + before + after).checked_sub(self.span()) else {
            return too_large(format!("{inputs} inputs with padding {before} and {after}"));
        };
        let mut outputs = room / self.stride + 1;
        // A window that would begin in the padding after the inputs covers no input: it does not count.
        if self.ceil && !room.is_multiple_of(self.stride) && outputs * self.stride < inputs + before {
            outputs += 1;
        }
        Ok(outputs)
    }

    /// The range of inputs that these outputs need; it may extend beyond the array.
    pub fn needed(&self, outputs: Range<i64>) -> Range<i64> {
        let (first, end) = (outputs.start, outputs.end);
        let (stride, before) = (self.stride as i64, self.padding.0 as i64);
        let span = self.span() as i64;
        if end <= first {
            let start =
                if self.transposed { (first + before).div_euclid(stride) } else { first * stride - before };
            return start..start;
        }
        if !self.transposed {
            return first * stride - before..(end - 1) * stride - before + span;
        }
        // Input i contributes to the outputs i * stride - before … + span - 1.
        let start = -(-(first + before - span + 1)).div_euclid(stride);
        start..((end - 1 + before).div_euclid(stride) + 1).max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Window> {
        let numbers = (1..=7).flat_map(|kernel| (1..=4).map(move |stride| (kernel, stride)));
        let dilated =
            numbers.flat_map(|(kernel, stride)| (1..=3).map(move |dilation| (kernel, stride, dilation)));
        dilated.flat_map(|(kernel, stride, dilation)| {
            [(0, 0), (1, 0), (2, 3)].into_iter().flat_map(move |padding| {
                let window = Window { kernel, stride, dilation, padding, ..Window::IDENTITY };
                [window, Window { ceil: true, ..window }, Window { transposed: true, ..window }]
            })
        })
    }

    /// The inputs of one output, by definition.
    fn touched(window: &Window, output: i64) -> Vec<i64> {
        let taps = (0..window.kernel as i64).map(|tap| tap * window.dilation as i64);
        let (stride, before) = (window.stride as i64, window.padding.0 as i64);
        match window.transposed {
            false => taps.map(|tap| output * stride - before + tap).collect(),
            true => taps
                .map(|tap| output + before - tap)
                .filter(|at| at.rem_euclid(stride) == 0)
                .map(|at| at.div_euclid(stride))
                .collect(),
        }
    }

    #[test]
    fn needed_is_what_the_outputs_touch() {
        for window in all() {
            for (first, end) in [(0, 1), (0, 5), (3, 4), (2, 9), (4, 4)] {
                let needed = window.needed(first..end);
                let touched: Vec<i64> = (first..end).flat_map(|output| touched(&window, output)).collect();
                assert!(
                    touched.iter().all(|input| needed.contains(input)),
                    "{window:?} {first}..{end} {needed:?}"
                );
                if !window.transposed && first < end {
                    assert_eq!(Some(&needed.start), touched.iter().min());
                    assert_eq!(Some(&(needed.end - 1)), touched.iter().max());
                }
                if window.transposed && !touched.is_empty() && window.dilation == 1 {
                    assert_eq!(Some(&needed.start), touched.iter().min(), "{window:?} {first}..{end}");
                    assert_eq!(Some(&(needed.end - 1)), touched.iter().max(), "{window:?} {first}..{end}");
                }
            }
        }
    }

    #[test]
    fn outputs_end_where_the_padded_domain_ends() {
        for window in all() {
            for inputs in 1..30usize {
                let Ok(outputs) = window.outputs(inputs) else { continue };
                let (before, after) = (window.padding.0 as i64, window.padding.1 as i64);
                if window.transposed {
                    let all = (inputs as i64 - 1) * window.stride as i64 + window.span() as i64;
                    assert_eq!(outputs as i64, all - before - after);
                    continue;
                }
                let last = window.needed(outputs as i64 - 1..outputs as i64);
                let next = window.needed(outputs as i64..outputs as i64 + 1);
                let end = inputs as i64 + after;
                match window.ceil {
                    false => assert!(last.end <= end && next.end > end),
                    true => assert!(last.start < inputs as i64 || last.end <= end),
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_rejected() {
        let wide = Window { kernel: 7, ..Window::IDENTITY };
        assert!(wide.outputs(6).unwrap_err().to_string().contains("within 6 inputs"));
        assert_eq!(Window { padding: (1, 0), ..wide }.outputs(6).unwrap(), 1);
        assert!(Window { stride: 0, ..wide }.outputs(9).is_err());
        assert!(Window { output_padding: 1, ..wide }.outputs(9).is_err());
        assert!(Window { transposed: true, output_padding: 1, ..wide }.outputs(9).is_err());
        assert_eq!(Window { transposed: true, stride: 2, output_padding: 1, ..wide }.outputs(9).unwrap(), 24);
    }
}
