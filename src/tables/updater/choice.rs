//! The updater of a table: a built-in one by name, or a user-defined one.

use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};

use super::adadelta::Adadelta;
use super::adagrad::Adagrad;
use super::adam::Adam;
use super::adamax::Adamax;
use super::adamw::Adamw;
use super::add::Add;
use super::dcasgd::Dcasgd;
use super::dcasgda::Dcasgda;
use super::ftrl::Ftrl;
use super::lion::Lion;
use super::momentum::Momentum;
use super::multiverso_adagrad::MultiversoAdagrad;
use super::multiverso_momentum::MultiversoMomentum;
use super::nesterov::Nesterov;
use super::rmsprop::Rmsprop;
use super::rule::{UpdateRule, untyped, wrong_type};
use super::sgd::Sgd;
use super::{TableElement, UpdateContext, Updater};
use crate::error::nearest::advice;
use crate::memory::DType;
use crate::{Error, Result};

/// The updater of a table.
///
/// ```
/// use unisono::tables::UpdaterChoice;
/// assert_eq!(UpdaterChoice::default().name(), "add");
/// assert_eq!(UpdaterChoice::named("momentum_sgd")?.name(), "multiverso_momentum");
///
/// let error = UpdaterChoice::named("adagard").unwrap_err();
/// assert!(error.to_string().contains("did you mean `adagrad`?"));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone)]
pub struct UpdaterChoice(Choice);

#[derive(Clone)]
enum Choice {
    BuiltIn(&'static BuiltIn),
    Custom(Arc<dyn UpdateRule>),
}

struct BuiltIn {
    name: &'static str,
    /// A name known from other systems.
    alias: Option<&'static str>,
    /// The rule for tables of this type, if the updater supports it.
    rule: fn(DType) -> Option<Arc<dyn UpdateRule>>,
}

static BUILT_IN: &[BuiltIn] = &[
    BuiltIn { name: "add", alias: Some("default"), rule: |dtype| for_numbers(Add, dtype) },
    BuiltIn { name: "sgd", alias: None, rule: |dtype| for_numbers(Sgd, dtype) },
    BuiltIn { name: "momentum", alias: None, rule: |dtype| for_floats(Momentum, dtype) },
    BuiltIn { name: "nesterov", alias: Some("nesterov_momentum"), rule: |dtype| for_floats(Nesterov, dtype) },
    BuiltIn { name: "adagrad", alias: None, rule: |dtype| for_floats(Adagrad, dtype) },
    BuiltIn { name: "rmsprop", alias: None, rule: |dtype| for_floats(Rmsprop, dtype) },
    BuiltIn { name: "adam", alias: None, rule: |dtype| for_floats(Adam, dtype) },
    BuiltIn { name: "adamw", alias: None, rule: |dtype| for_floats(Adamw, dtype) },
    BuiltIn { name: "adamax", alias: None, rule: |dtype| for_floats(Adamax, dtype) },
    BuiltIn { name: "adadelta", alias: None, rule: |dtype| for_floats(Adadelta, dtype) },
    BuiltIn { name: "lion", alias: None, rule: |dtype| for_floats(Lion, dtype) },
    BuiltIn { name: "ftrl", alias: None, rule: |dtype| for_floats(Ftrl, dtype) },
    BuiltIn { name: "dcasgd", alias: None, rule: |dtype| for_floats(Dcasgd, dtype) },
    BuiltIn { name: "dcasgda", alias: None, rule: |dtype| for_floats(Dcasgda, dtype) },
    BuiltIn { name: "multiverso_adagrad", alias: None, rule: |dtype| for_floats(MultiversoAdagrad, dtype) },
    BuiltIn {
        name: "multiverso_momentum",
        alias: Some("momentum_sgd"),
        rule: |dtype| for_floats(MultiversoMomentum, dtype),
    },
];

fn for_floats<U>(updater: U, dtype: DType) -> Option<Arc<dyn UpdateRule>>
where
    U: Updater<f32> + Updater<f64> + Updater<f16> + Updater<bf16>,
{
    let updater = Arc::new(updater);
    match dtype {
        DType::F32 => Some(untyped::<f32, U>(updater)),
        DType::F64 => Some(untyped::<f64, U>(updater)),
        DType::F16 => Some(untyped::<f16, U>(updater)),
        DType::BF16 => Some(untyped::<bf16, U>(updater)),
        _ => None,
    }
}

fn for_numbers<U>(updater: U, dtype: DType) -> Option<Arc<dyn UpdateRule>>
where
    U: Updater<f32> + Updater<f64> + Updater<f16> + Updater<bf16> + Updater<i32> + Updater<i64>,
{
    match dtype {
        DType::I32 => Some(untyped::<i32, U>(Arc::new(updater))),
        DType::I64 => Some(untyped::<i64, U>(Arc::new(updater))),
        _ => for_floats(updater, dtype),
    }
}

impl UpdaterChoice {
    /// The built-in updater of this name: one of [`UpdaterChoice::names`], or an alias.
    pub fn named(name: &str) -> Result<UpdaterChoice> {
        let built_in = BUILT_IN.iter().find(|built_in| built_in.name == name || built_in.alias == Some(name));
        let Some(built_in) = built_in else {
            let names: Vec<_> = UpdaterChoice::names().collect();
            let aliases = BUILT_IN.iter().filter_map(|built_in| built_in.alias);
            return Err(Error::usage(
                "updater",
                format!("one of {}", names.join(", ")),
                format!("{name:?}"),
                advice(
                    name,
                    UpdaterChoice::names().chain(aliases),
                    "give one of these names, or write your own",
                ),
            ));
        };
        Ok(UpdaterChoice(Choice::BuiltIn(built_in)))
    }

    /// The names of the built-in updaters.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|built_in| built_in.name)
    }

    /// The built-in updaters that use an option of this name.
    pub(super) fn using_option(option: &str) -> Vec<&'static str> {
        let uses = |built_in: &&BuiltIn| {
            let names = (built_in.rule)(DType::F32).and_then(|rule| rule.uses());
            names.is_some_and(|names| names.contains(&option))
        };
        BUILT_IN.iter().filter(uses).map(|built_in| built_in.name).collect()
    }

    /// Rejects the name of an option that this updater does not use; `table` appears in the error message.
    ///
    /// ```
    /// use unisono::tables::UpdaterChoice;
    /// let sgd = UpdaterChoice::named("sgd")?;
    /// let error = sgd.check_option("weights", "momentum").unwrap_err().to_string();
    /// assert!(error.contains("choose an updater that uses it: momentum, nesterov, dcasgda, multiverso_momentum"), "{error}");
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn check_option(&self, table: &str, option: &str) -> Result<()> {
        let rule = match &self.0 {
            Choice::Custom(rule) => Some(rule.clone()),
            Choice::BuiltIn(built_in) => (built_in.rule)(DType::F32),
        };
        rule.map_or(Ok(()), |rule| rule.check_name(table, option))
    }

    /// Applies one step to memory that belongs to no table. `state` has one slice for each plane of the updater, zero before the
    /// first step. The options are taken as they are, without a check of their range; those that are absent have defaults.
    ///
    /// ```
    /// use unisono::tables::{AddOptions, UpdateContext, UpdaterChoice};
    /// let (mut weights, mut velocity) = ([1.0f32], [0.5f32]);
    /// let context = UpdateContext { worker: 0, step: 2, options: &AddOptions::default() };
    /// UpdaterChoice::named("momentum")?.step(&mut weights, &mut [&mut velocity], &[0.25], &context)?;
    /// assert_eq!((weights, velocity), ([0.3], [0.7]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    pub fn step<T: TableElement>(
        &self,
        values: &mut [T],
        state: &mut [&mut [T::State]],
        delta: &[T],
        context: &UpdateContext,
    ) -> Result<()> {
        let rule = self.rule(T::DTYPE)?;
        let planes = rule.shared_planes() + rule.worker_planes();
        let lengths = state.iter().map(|plane| plane.len()).chain([delta.len()]);
        if planes != state.len() || lengths.into_iter().any(|length| length != values.len()) {
            return Err(Error::usage(
                "updater step",
                format!("{planes} planes of state and a delta, each of length {}", values.len()),
                format!("{} planes, and a delta of length {}", state.len(), delta.len()),
                "allocate the state once, for these values",
            ));
        }
        let mut state: Vec<&mut [u8]> =
            state.iter_mut().map(|plane| bytemuck::cast_slice_mut(plane)).collect();
        rule.update(bytemuck::cast_slice_mut(values), &mut state, bytemuck::cast_slice(delta), context);
        Ok(())
    }

    /// A user-defined updater, for tables of `T`.
    pub fn custom<T: TableElement>(updater: Arc<dyn Updater<T>>) -> UpdaterChoice {
        UpdaterChoice(Choice::Custom(untyped::<T, dyn Updater<T>>(updater)))
    }

    /// The updater's name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Choice::BuiltIn(built_in) => built_in.name,
            Choice::Custom(rule) => rule.name(),
        }
    }

    /// Whether it is a built-in updater.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self.0, Choice::BuiltIn(_))
    }

    /// The rule for a table of this type.
    ///
    /// Only `add` and `sgd` are defined for integers. Other updaters are rejected for integer tables: a fallback to `add` would
    /// silently change what a program computes.
    pub(crate) fn rule(&self, dtype: DType) -> Result<Arc<dyn UpdateRule>> {
        match &self.0 {
            Choice::Custom(rule) if rule.dtype() == dtype => Ok(rule.clone()),
            Choice::Custom(rule) => {
                let advice = "pass an updater that is made for the table's type";
                Err(wrong_type(rule.name(), rule.dtype().name(), dtype, advice))
            }
            Choice::BuiltIn(built_in) => (built_in.rule)(dtype).ok_or_else(|| {
                let types: Vec<_> =
                    DType::ALL.into_iter().filter(|dtype| (built_in.rule)(*dtype).is_some()).collect();
                let types: Vec<_> = types.iter().map(|dtype| dtype.name()).collect();
                let advice = match dtype {
                    DType::I32 | DType::I64 => "choose one of these types, or the updater `add` or `sgd`",
                    _ => "choose one of these types",
                };
                wrong_type(built_in.name, &types.join(", "), dtype, advice)
            }),
        }
    }
}

impl Default for UpdaterChoice {
    fn default() -> UpdaterChoice {
        UpdaterChoice(Choice::BuiltIn(&BUILT_IN[0]))
    }
}

impl fmt::Debug for UpdaterChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UpdaterChoice({:?})", self.name())
    }
}
