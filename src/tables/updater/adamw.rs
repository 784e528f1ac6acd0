//! `adamw`, adam with decoupled weight decay: w −= η·λ·w, then the step of `adam`.
//!
//! State and steps are those of `adam`. δ is the gradient g itself, without a penalty term; the learning rate η and the weight
//! decay λ are options, with the defaults of `torch.optim.AdamW`. Loshchilov and Hutter, "Decoupled weight decay regularization",
//! 2019; there the decay does not depend on η.

use super::adam::{BETA1, BETA2, EPSILON, LEARNING_RATE, update};
use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater};
use crate::memory::{Real, TableElement};

pub(super) struct Adamw;

const WEIGHT_DECAY: Setting = setting!(weight_decay = 0.01, NotNegative);

impl<T: TableElement<State: Real>> Updater<T> for Adamw {
    fn name(&self) -> &str {
        "adamw"
    }

    fn shared_planes(&self) -> usize {
        2
    }

    settings!(&[LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let decay = LEARNING_RATE.as_f64(context) * WEIGHT_DECAY.as_f64(context);
        let kept = T::State::from_f64(1.0 - decay);
        update(values, state, delta, context, |value| value * kept);
    }
}
