//! How an add changes a table: the trait for such rules, the built-in ones (a file each), and the choice among them.

mod adagrad;
mod adam;
mod add;
mod choice;
mod dcasgd;
mod dcasgda;
mod ftrl;
mod lion;
mod momentum;
mod multiverso_adagrad;
mod multiverso_momentum;
mod nesterov;
mod rmsprop;
mod rule;
mod setting;
mod sgd;
#[cfg(test)]
mod tests;

pub use choice::UpdaterChoice;
pub(crate) use rule::UpdateRule;

use super::AddOptions;
use crate::Result;
use crate::memory::TableElement;

/// What an update may look at besides the numbers themselves.
#[derive(Debug, Clone, Copy)]
pub struct UpdateContext<'a> {
    /// Who adds: the worker's id.
    pub worker: usize,
    /// How many adds this unit (a row, or a piece of an array) has had, this one included: 1 for the first. They are not
    /// counted, and this is 0, where the updater keeps no state.
    pub step: u64,
    /// The add's options, else the table's, else the updater's defaults.
    pub options: &'a AddOptions,
}

/// A rule by which an add changes a table. Name a built-in one with [`UpdaterChoice::named`], or write your own:
///
/// ```
/// use std::sync::Arc;
/// use unisono::tables::{AddOptions, Real, TableElement, UpdateContext, Updater, UpdaterChoice};
///
/// /// Moves each value by a fixed amount, against the sign of its gradient.
/// struct SignDescent;
///
/// impl<T: TableElement<State: Real>> Updater<T> for SignDescent {
///     fn name(&self) -> &str {
///         "sign_descent"
///     }
///     fn defaults(&self) -> AddOptions {
///         AddOptions { learning_rate: Some(0.5), ..AddOptions::default() }
///     }
///     fn update(&self, values: &mut [T], _: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
///         let step = T::State::from_f64(context.options.learning_rate.unwrap_or(0.5));
///         for (value, gradient) in values.iter_mut().zip(delta) {
///             *value = T::narrow(value.widen() - step.with_sign_of(gradient.widen()));
///         }
///     }
/// }
///
/// let mut values = [1.0f32, 2.0];
/// let options = Updater::<f32>::defaults(&SignDescent);
/// let context = UpdateContext { worker: 0, step: 1, options: &options };
/// SignDescent.update(&mut values, &mut [], &[0.1, -7.0], &context);
/// assert_eq!(values, [0.5, 2.5]);
///
/// let choice = UpdaterChoice::custom::<f32>(Arc::new(SignDescent));
/// assert_eq!(choice.name(), "sign_descent");
/// ```
pub trait Updater<T: TableElement>: Send + Sync + 'static {
    /// Its name, as errors and checkpoints show it.
    fn name(&self) -> &str;

    /// How many arrays of state it keeps that all workers share, each as long as the values.
    fn shared_planes(&self) -> usize {
        0
    }

    /// How many arrays of state it keeps for each worker.
    fn worker_planes(&self) -> usize {
        0
    }

    /// The options that it uses where neither the add nor the table sets them.
    fn defaults(&self) -> AddOptions {
        AddOptions::default()
    }

    /// The names of the options that it looks at: others are refused, for whoever sets one expects something of it. `None` if
    /// it may look at any.
    fn uses(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// Whether adds that are applied one by one change a table as their sum would. If not, the adds of a round of consistency
    /// `bsp` are summed first, and the sum is one step.
    fn is_linear(&self) -> bool {
        false
    }

    /// Refuses options with which it cannot work; asked before anything changes. They are finite, with defaults filled in.
    fn check(&self, options: &AddOptions) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Changes `values` by `delta`; all slices have one length. `state` holds the shared planes, then this worker's
    /// planes. All state is zero at first. It is called under a lock and must not panic.
    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext);
}

/// The planes of a built-in rule, which knows how many it asked for.
fn planes<'a, S, const PLANES: usize>(state: &'a mut [&mut [S]]) -> [&'a mut [S]; PLANES] {
    let planes: &mut [&mut [S]; PLANES] =
        state.try_into().expect("a rule gets as many planes as it asked for");
    planes.each_mut().map(|plane| &mut **plane)
}
