//! The inner loop of every updater: it applies deltas to values, element by element, in registers.

use super::TableElement;

/// Replaces each value, and its element of every plane, with the result of `formula(value, planes, delta)`; half types are
/// widened before and rounded once after it. All slices have the same length.
///
/// Elements are processed in arrays of a fixed length, so that the compiler may use wide registers.
#[inline]
pub(crate) fn update_each<T: TableElement, const PLANES: usize>(
    values: &mut [T],
    planes: [&mut [T::State]; PLANES],
    delta: &[T],
    formula: impl Fn(T::State, [T::State; PLANES], T::State) -> (T::State, [T::State; PLANES]),
) {
    assert_eq!(values.len(), delta.len(), "a delta is as long as the values");
    for plane in &planes {
        assert_eq!(values.len(), plane.len(), "a plane of state is as long as the values");
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c") {
        // SAFETY: the features were just detected.
        return unsafe { update_avx2(values, planes, delta, formula) };
    }
    update_any(values, planes, delta, formula);
}

/// The same code, compiled for wider registers. It never fuses multiply and add, so results do not change.
///
/// # Safety
/// The CPU has AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn update_avx2<T: TableElement, const PLANES: usize>(
    values: &mut [T],
    planes: [&mut [T::State]; PLANES],
    delta: &[T],
    formula: impl Fn(T::State, [T::State; PLANES], T::State) -> (T::State, [T::State; PLANES]),
) {
    update_any(values, planes, delta, formula);
}

/// Large chunks, then small ones for short rows and remainders, then single elements.
#[inline(always)]
fn update_any<T: TableElement, const PLANES: usize>(
    values: &mut [T],
    mut planes: [&mut [T::State]; PLANES],
    delta: &[T],
    formula: impl Fn(T::State, [T::State; PLANES], T::State) -> (T::State, [T::State; PLANES]),
) {
    let done = bundles::<T, PLANES, 32>(values, &mut planes, delta, 0, &formula);
    let done = bundles::<T, PLANES, 8>(values, &mut planes, delta, done, &formula);
    bundles::<T, PLANES, 1>(values, &mut planes, delta, done, &formula);
}

/// Processes as many full chunks as fit from `start` on; returns where they end.
#[inline(always)]
fn bundles<T: TableElement, const PLANES: usize, const LANES: usize>(
    values: &mut [T],
    planes: &mut [&mut [T::State]; PLANES],
    delta: &[T],
    start: usize,
    formula: &impl Fn(T::State, [T::State; PLANES], T::State) -> (T::State, [T::State; PLANES]),
) -> usize {
    let (values, _) = values[start..].as_chunks_mut::<LANES>();
    let (delta, _) = delta[start..].as_chunks::<LANES>();
    let mut planes = planes.each_mut().map(|plane| plane[start..].as_chunks_mut::<LANES>().0);
    for (bundle, (values, delta)) in values.iter_mut().zip(delta).enumerate() {
        let mut wide_values = [T::State::default(); LANES];
        let mut wide_delta = [T::State::default(); LANES];
        T::widen_all(values, &mut wide_values);
        T::widen_all(delta, &mut wide_delta);
        let mut state: [[T::State; LANES]; PLANES] = planes.each_ref().map(|plane| plane[bundle]);
        for lane in 0..LANES {
            let before = state.each_ref().map(|plane| plane[lane]);
            let (value, after) = formula(wide_values[lane], before, wide_delta[lane]);
            wide_values[lane] = value;
            for (plane, after) in state.iter_mut().zip(after) {
                plane[lane] = after;
            }
        }
        T::narrow_all(&wide_values, values);
        for (plane, state) in planes.iter_mut().zip(state) {
            plane[bundle] = state;
        }
    }
    start + LANES * values.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_every_plane_is_updated_once() {
        for length in (0..140).chain([1000, 1023]) {
            let mut values: Vec<f64> = (0..length).map(f64::from).collect();
            let mut planes = [vec![1.0; values.len()], vec![2.0; values.len()]];
            let delta: Vec<f64> = (0..length).map(|i| f64::from(i) * 10.0).collect();
            let [first, second] = planes.each_mut().map(Vec::as_mut_slice);
            update_each(&mut values, [first, second], &delta, |value, [a, b], delta| {
                (value + delta + a, [a + value, b + delta])
            });
            for i in 0..values.len() {
                let index = i as f64;
                assert_eq!(
                    (values[i], planes[0][i], planes[1][i]),
                    (11.0 * index + 1.0, index + 1.0, 10.0 * index + 2.0),
                    "element {i} of {length}"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "a delta is as long as the values")]
    fn a_short_delta_is_rejected() {
        update_each(&mut [1.0f32; 4], [], &[1.0; 3], |value, [], delta| (value + delta, []));
    }
}
