//! A user-defined updater.

use super::*;
use crate::memory::Real;
use crate::tables::updater::rule::untyped;

/// A user-defined updater with more planes than any built-in rule; it accumulates the step numbers in its state.
struct Counting;

impl<T: TableElement<State: Real>> Updater<T> for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn shared_planes(&self) -> usize {
        1
    }
    fn worker_planes(&self) -> usize {
        2
    }
    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        assert_eq!((state.len(), values.len(), delta.len()), (3, 5, 5));
        for plane in state.iter_mut().flat_map(|plane| plane.iter_mut()) {
            *plane = *plane + T::State::from_f64(context.step as f64);
        }
        values.copy_from_slice(delta);
    }
}

#[test]
fn a_user_may_bring_an_updater() {
    let choice = UpdaterChoice::custom::<f16>(Arc::new(Counting));
    let text = choice.rule(DType::F32).err().unwrap().to_string();
    assert!(text.contains("elements of float16 for the updater `counting`, received float32"), "{text}");
    assert_eq!(format!("{choice:?}"), "UpdaterChoice(\"counting\")");

    let rule = choice.rule(DType::F16).unwrap();
    assert_eq!((rule.shared_planes(), rule.worker_planes(), rule.state_dtype()), (1, 2, DType::F32));
    let mut state = vec![vec![0f32; 5]; 3];
    let mut values = [f16::ZERO; 5];
    for step in 1..=3 {
        let context = UpdateContext { worker: 0, step, options: &AddOptions::default() };
        let mut planes: Vec<&mut [u8]> =
            state.iter_mut().map(|plane| bytemuck::cast_slice_mut(plane)).collect();
        let delta = [f16::from_f64(step as f64); 5];
        rule.update(
            bytemuck::cast_slice_mut(&mut values),
            &mut planes,
            bytemuck::cast_slice(&delta),
            &context,
        );
    }
    assert_eq!(state, vec![vec![6.0; 5]; 3]);
    assert_eq!(values, [f16::from_f64(3.0); 5]);
    assert_eq!(untyped::<f64, Counting>(Arc::new(Counting)).state_dtype(), DType::F64);
}
