//! `ftrl`, follow the regularised leader, for sparse linear models:
//! σ = (√(n+g²)−√n)/α, z += g − σ·w, n += g², then w = 0 where |z| ≤ λ₁, else (sgn(z)·λ₁ − z)/((β+√n)/α + λ₂).
//!
//! All workers share z and n, which start at zero. δ is the gradient g itself. The L1 penalty λ₁ keeps weights at exactly zero
//! until there is enough evidence for them; its useful size depends on that of the gradients, so both penalties are off by
//! default. A weight that has received no gradient keeps its initial value. McMahan and others, "Ad click prediction: a view from
//! the trenches", 2013, algorithm 1.

use super::setting::{Setting, setting, settings};
use super::{UpdateContext, Updater, planes};
use crate::memory::each::update_each;
use crate::memory::{Real, TableElement};

pub(super) struct Ftrl;

const ALPHA: Setting = setting!(alpha = 0.1, Positive);
const BETA: Setting = setting!(beta = 1.0, NotNegative);
const LAMBDA1: Setting = setting!(lambda1 = 0.0, NotNegative);
const LAMBDA2: Setting = setting!(lambda2 = 0.0, NotNegative);

impl<T: TableElement<State: Real>> Updater<T> for Ftrl {
    fn name(&self) -> &str {
        "ftrl"
    }

    fn shared_planes(&self) -> usize {
        2
    }

    settings!(&[ALPHA, BETA, LAMBDA1, LAMBDA2]);

    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        let (alpha, beta): (T::State, T::State) = (ALPHA.of(context), BETA.of(context));
        let (lambda1, lambda2): (T::State, T::State) = (LAMBDA1.of(context), LAMBDA2.of(context));
        update_each(values, planes(state), delta, |value, [z, n], gradient| {
            let (before, n) = (n.square_root(), n + gradient * gradient);
            let after = n.square_root();
            let z = z + (gradient - (after - before) / alpha * value);
            // Soft thresholding: towards zero by lambda1, and no further. Branch-free, and a NaN propagates.
            let evidence = z.absolute() - lambda1;
            let evidence = if evidence < T::State::ZERO { T::State::ZERO } else { evidence };
            let weight = T::State::ZERO - evidence.with_sign_of(z) / ((beta + after) / alpha + lambda2);
            (if n == T::State::ZERO { value } else { weight }, [z, n])
        });
    }
}
