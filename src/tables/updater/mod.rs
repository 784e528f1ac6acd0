//! How an add changes a table: the trait for update rules, the built-in rules (one per file), and the choice among them.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
mod adamw;
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

/// The context of an update, besides values and delta.
#[derive(Debug, Clone, Copy)]
pub struct UpdateContext<'a> {
    /// The id of the worker that adds.
    pub worker: usize,
    /// The number of adds to this unit (a row, or a stripe of an array), including this one: 1 for the first. If the updater has
    /// no state, adds are not counted and this is 0.
    pub step: u64,
    /// The add's options, else the table's, else the updater's defaults.
    pub options: &'a AddOptions,
}

/// A rule by which an add changes a table. Select a built-in one with [`UpdaterChoice::named`], or implement your own:
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
///         AddOptions { lr: Some(0.5), ..AddOptions::default() }
///     }
///     fn update(&self, values: &mut [T], _: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
///         let step = T::State::from_f64(context.options.lr.unwrap_or(0.5));
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
    /// Its name, as shown in errors and stored in checkpoints.
    fn name(&self) -> &str;

    /// The number of state arrays shared by all workers, each as long as the values.
    fn shared_planes(&self) -> usize {
        0
    }

    /// The number of state arrays per worker.
    fn worker_planes(&self) -> usize {
        0
    }

    /// The options used if neither the add nor the table sets them.
    fn defaults(&self) -> AddOptions {
        AddOptions::default()
    }

    /// The names of the options that it uses; other options are rejected, because setting them would have no effect. `None` if it
    /// may use any option.
    fn uses(&self) -> Option<Vec<&'static str>> {
        None
    }

    /// These options, with aliases that this rule accepts replaced by the names of its options.
    fn canonical(&self, options: AddOptions) -> AddOptions {
        options
    }

    /// Whether applying adds one by one is equivalent to applying their sum. If not, the adds of a round of consistency `bsp` are
    /// summed first, and the sum is applied as one step.
    fn is_linear(&self) -> bool {
        false
    }

    /// Rejects invalid options; called before anything changes. The options are finite, with defaults filled in.
    fn check(&self, options: &AddOptions) -> Result<()> {
        let _ = options;
        Ok(())
    }

    /// Updates `values` by `delta`; all slices have the same length. `state` holds the shared planes, then this worker's planes.
    /// All state is zero initially. It is called under a lock and must not panic.
    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext);
}

/// The planes of a built-in rule, whose number is known at compile time.
fn planes<'a, S, const PLANES: usize>(state: &'a mut [&mut [S]]) -> [&'a mut [S]; PLANES] {
    let planes: &mut [&mut [S]; PLANES] =
        state.try_into().expect("a rule gets as many planes as it asked for");
    planes.each_mut().map(|plane| &mut **plane)
}
