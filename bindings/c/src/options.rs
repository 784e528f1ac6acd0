//! For C: options of tables and of adds, by name.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

use unisono::tables::{
    AddOptions, Compression, Consistency, Eviction, Init, Repeats, TableOptions, UpdaterChoice,
};
use unisono::{Error, Result};

use crate::errors::guard;
use crate::ffi_args::FfiArgs;
use crate::handles;

/// Options of a table or of an add.
pub type OptionsHandle = u64;

/// No options: everything has its default.
pub const UNISONO_DEFAULTS: OptionsHandle = 0;

/// The options set so far.
#[derive(Default)]
pub(crate) struct OptionSet {
    settings: Mutex<TableSettings>,
}

#[derive(Clone, Default)]
pub(crate) struct TableSettings {
    pub(crate) table: TableOptions,
    pub(crate) pipelined: bool,
    distribution: Option<Distribution>,
    /// The values of [`RANGE`], in the same order.
    range: [Option<f64>; RANGE.len()],
}

#[derive(Clone, Copy, PartialEq)]
enum Distribution {
    Uniform,
    Normal,
}

const TEXTS: &[&str] = &["name", "updater", "consistency", "compression", "init", "repeats", "eviction"];
const NUMBERS: &[&str] = &["init", "reject_nan", "pipelined", "max_rows"];
/// Parameters of random initial values: each but the last belongs to one distribution.
const RANGE: &[&str] = &["low", "high", "mean", "deviation", "seed"];

impl TableSettings {
    fn set_text(&mut self, args: &FfiArgs, name: &str, value: &str) -> Result<()> {
        match name {
            "name" => self.table.name = Some(value.to_owned()),
            "updater" => self.table.updater = UpdaterChoice::named(value)?,
            "consistency" => self.table.consistency = Consistency::parse(value)?,
            "eviction" => self.table.eviction = Some(Eviction::parse(value)?),
            "repeats" => self.table.repeats = Some(Repeats::parse(value)?),
            "compression" => self.table.compression = Compression::parse(value)?,
            "init" => {
                self.distribution = match value {
                    "zero" => None,
                    "uniform" => Some(Distribution::Uniform),
                    "normal" => Some(Distribution::Normal),
                    other => {
                        let advice = "for a constant, set the number \"init\"";
                        return Err(args.usage_error(
                            "zero, uniform or normal",
                            format!("{other:?}"),
                            advice,
                        ));
                    }
                };
                self.table.init = Init::Zero;
            }
            other => return Err(unknown(args, other, &TEXTS.join(", "))),
        }
        Ok(())
    }

    fn set_number(&mut self, args: &FfiArgs, name: &str, value: f64) -> Result<()> {
        if let Some(position) = RANGE.iter().position(|&known| known == name) {
            self.range[position] = Some(value);
            return Ok(());
        }
        match name {
            "init" => (self.table.init, self.distribution) = (Init::Constant(value), None),
            "reject_nan" => self.table.reject_nan = value != 0.0,
            "pipelined" => self.pipelined = value != 0.0,
            "max_rows" => {
                let whole = value >= 1.0 && value.fract() == 0.0 && value <= (1u64 << 53) as f64;
                let advice = "leave it out for a table without a limit";
                let wrong =
                    || args.usage_error("a whole number from 1 for max_rows", value.to_string(), advice);
                self.table.max_rows = Some(whole.then_some(value as usize).ok_or_else(wrong)?);
            }
            other if AddOptions::NAMES.contains(&AddOptions::canonical(other)) => {
                self.table.add.set(other, value)?
            }
            other => {
                let known = [NUMBERS, RANGE, AddOptions::NAMES].concat().join(", ");
                return Err(unknown(args, other, &known));
            }
        }
        Ok(())
    }

    /// The options of a table that is created with them.
    pub(crate) fn for_table(&self, args: &FfiArgs) -> Result<TableOptions> {
        let mut options = self.table.clone();
        let allowed: &[&str] = match self.distribution {
            None => &[],
            Some(Distribution::Uniform) => &["low", "high", "seed"],
            Some(Distribution::Normal) => &["mean", "deviation", "seed"],
        };
        let stray =
            RANGE.iter().zip(&self.range).find(|(name, value)| value.is_some() && !allowed.contains(name));
        if let Some((name, _)) = stray {
            let advice =
                "set the text \"init\" to uniform (low, high, seed) or normal (mean, deviation, seed)";
            return Err(args.usage_error(
                "options that belong together",
                format!("the number {name:?}"),
                advice,
            ));
        }
        let number = |position: usize, usual: f64| self.range[position].unwrap_or(usual);
        let seed = || {
            let seed = number(4, 0.0);
            let whole = seed >= 0.0 && seed.fract() == 0.0 && seed <= (1u64 << 53) as f64;
            whole.then_some(seed as u64).ok_or_else(|| {
                args.usage_error("a whole number from 0 for seed", seed.to_string(), "write for example 1")
            })
        };
        match self.distribution {
            None => {}
            Some(Distribution::Uniform) => {
                options.init = Init::Uniform { low: number(0, 0.0), high: number(1, 1.0), seed: seed()? };
            }
            Some(Distribution::Normal) => {
                options.init =
                    Init::Normal { mean: number(2, 0.0), deviation: number(3, 1.0), seed: seed()? };
            }
        }
        Ok(options)
    }
}

fn unknown(args: &FfiArgs, name: &str, known: &str) -> Error {
    args.usage_error(
        &format!("one of {known}"),
        format!("{name:?}"),
        "texts and numbers have different names",
    )
}

impl OptionSet {
    fn change(&self, work: impl FnOnce(&mut TableSettings) -> Result<()>) -> Result<()> {
        work(&mut self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FfiArgs {
    /// The settings of an options handle.
    pub(crate) fn settings(&self, options: OptionsHandle) -> Result<TableSettings> {
        if options == UNISONO_DEFAULTS {
            return Ok(TableSettings::default());
        }
        let options: Arc<OptionSet> = self.object(options)?;
        let settings = options.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(settings.clone())
    }

    /// The settings that an add uses.
    pub(crate) fn add_options(&self, options: OptionsHandle) -> Result<AddOptions> {
        if options == UNISONO_DEFAULTS {
            return Ok(AddOptions::default());
        }
        let options: Arc<OptionSet> = self.object(options)?;
        let settings = options.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(settings.table.add)
    }
}

/// Creates options in which nothing is set. The same options may be used for many tables and adds; an add uses the
/// updater's numbers only. For numbers that an add does not set, the table's own options apply.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_options_new(options: *mut OptionsHandle) -> i32 {
    guard("options_new", |args| {
        let out = args.out_param(options, "a place for the handle")?;
        out.write(handles::register(Arc::new(OptionSet::default())));
        Ok(())
    })
}

/// Sets an option whose value is a text:
///
/// - name: identifies the table in a checkpoint and for a restarted rank;
/// - updater: add (default), sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw,
///   adamax, adadelta, lion, ftrl, dcasgd, dcasgda, multiverso_adagrad or multiverso_momentum;
/// - consistency: async (default), bsp, bsp:backup=1, bsp:mean, ssp:3 or average;
/// - compression, between hosts: none (default), float16, bfloat16, int8 or topk:0.01;
/// - repeats, for rows or keys that one add lists more than once: sum (one step of the updater with their sum; default unless
///   the updater is add or sgd) or each (one step for each);
/// - eviction, of a key-value table with the number max_rows: lru (default) or lfu;
/// - init: zero (default), uniform or normal.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_options_set_text(
    options: OptionsHandle,
    name: *const c_char,
    value: *const c_char,
) -> i32 {
    guard("options_set_text", |args| {
        let (name, value) = (args.text(name, "an option's name")?, args.text(value, "its value")?);
        args.object::<Arc<OptionSet>>(options)?.change(|settings| settings.set_text(args, name, value))
    })
}

/// Sets an option whose value is a number:
///
/// - init: the initial value of every element;
/// - low, high (uniform), mean, deviation (normal), seed (both): for random initial values;
/// - reject_nan: 1 to reject adds that contain a NaN;
/// - pipelined: 1 for a sparse matrix with a second view of the changes;
/// - max_rows: the maximum number of rows of a key-value table, which then evicts rows;
/// - parameters of the updater: lr, momentum, rho, lambda, eps, beta1, beta2, alpha, beta, lambda1, lambda2, lr_decay,
///   initial_accumulator_value, weight_decay; also learning_rate (lr) and epsilon (eps).
#[unsafe(no_mangle)]
pub extern "C" fn unisono_options_set_number(options: OptionsHandle, name: *const c_char, value: f64) -> i32 {
    guard("options_set_number", |args| {
        let name = args.text(name, "an option's name")?;
        args.object::<Arc<OptionSet>>(options)?.change(|settings| settings.set_number(args, name, value))
    })
}

/// Frees options.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_options_free(options: OptionsHandle) -> i32 {
    guard("options_free", |args| args.free::<Arc<OptionSet>>(options))
}
