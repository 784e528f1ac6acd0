//! Device versions of the built-in updaters: a struct of `rules.cu`, and the numeric parameters of its formula.

use crate::error::{Error, Result};
use crate::memory::DType;
use crate::tables::spec::description::TableKind;
use crate::tables::{AddOptions, Consistency, TableOptions};

/// Maximum number of parameters of a formula.
pub(crate) const NUMBERS: usize = 8;

/// Factors that a kernel derives from a row's number of updates: the fields of `Scale` in `rules.cu`.
pub(crate) const SCALES: usize = 2;

/// Maximum number of planes of state of a row.
pub(crate) const PLANES: usize = 2;

/// An updater's formula.
#[derive(Clone, Copy)]
pub(crate) struct Formula {
    /// Its name in `rules.cu`.
    rule: &'static str,
    /// Whether it depends on the row's number of updates; equals COUNTS_STEPS of the structure.
    counts_steps: bool,
    numbers: fn(&OptionValues) -> [f64; NUMBERS],
}

/// Options of an add by name; all options that the updater uses are set.
struct OptionValues<'a>(&'a AddOptions);

impl OptionValues<'_> {
    fn of(&self, name: &str) -> f64 {
        self.0.get(name).unwrap_or(0.0)
    }

    /// An option with an alias, which takes precedence.
    fn either(&self, alias: &str, name: &str) -> f64 {
        self.0.get(alias).unwrap_or_else(|| self.of(name))
    }
}

/// The parameters that adam and its variants share.
fn moments(set: &OptionValues) -> [f64; 6] {
    let (beta1, beta2) = (set.of("beta1"), set.of("beta2"));
    [beta1, beta2, set.of("eps"), set.of("lr"), beta1.ln(), beta2.ln()]
}

/// The given numbers, padded with zeros.
fn padded<const COUNT: usize>(given: [f64; COUNT]) -> [f64; NUMBERS] {
    let mut all = [0.0; NUMBERS];
    all[..COUNT].copy_from_slice(&given);
    all
}

impl Formula {
    /// The formula of a built-in updater. Values derived from options are computed here, in double precision, as in the CPU
    /// rules.
    pub fn of(updater: &str) -> Option<Formula> {
        let formula = |rule, numbers| Some(Formula { rule, counts_steps: false, numbers });
        // For rules that depend on the row's number of updates.
        let counting = |rule, numbers| Some(Formula { rule, counts_steps: true, numbers });
        match updater {
            "add" => formula("Add", |_| padded([])),
            "sgd" => formula("Sgd", |_| padded([])),
            "momentum" => formula("Momentum", |set| padded([set.of("momentum")])),
            "nesterov" => formula("Nesterov", |set| padded([set.of("momentum")])),
            "adagrad" => counting("Adagrad", |set| {
                let names = ["lr", "eps", "lr_decay", "initial_accumulator_value"];
                padded(names.map(|name| set.of(name)))
            }),
            "multiverso_adagrad" => {
                formula("MultiversoAdagrad", |set| padded(["lr", "rho", "eps"].map(|name| set.of(name))))
            }
            "multiverso_momentum" => {
                formula("MultiversoMomentum", |set| padded([set.of("momentum"), 1.0 - set.of("momentum")]))
            }
            "rmsprop" => formula("Rmsprop", |set| {
                let alpha = set.either("rho", "alpha");
                padded([set.of("lr"), alpha, 1.0 - alpha, set.of("eps")])
            }),
            "adadelta" => formula("Adadelta", |set| {
                let rho = set.of("rho");
                padded([set.of("lr"), rho, 1.0 - rho, set.of("eps")])
            }),
            "adam" => counting("Adam", |set| padded(moments(set))),
            "adamax" => counting("Adamax", |set| padded(moments(set))),
            "adamw" => counting("Adamw", |set| {
                let [beta1, beta2, epsilon, rate, log1, log2] = moments(set);
                padded([beta1, beta2, epsilon, rate, log1, log2, 1.0 - rate * set.of("weight_decay")])
            }),
            "lion" => formula("Lion", |set| {
                let (beta1, beta2) = (set.of("beta1"), set.of("beta2"));
                let decay = set.either("lambda", "weight_decay");
                padded([set.of("lr"), decay, beta1, beta2, 1.0 - beta1, 1.0 - beta2])
            }),
            "ftrl" => formula("Ftrl", |set| {
                padded(["alpha", "beta", "lambda1", "lambda2"].map(|name| set.of(name)))
            }),
            "dcasgd" => formula("Dcasgd", |set| padded([set.of("lambda") / set.of("lr")])),
            "dcasgda" => formula("Dcasgda", |set| {
                let momentum = set.of("momentum");
                let (rate, lambda) = (set.of("lr"), set.of("lambda"));
                padded([rate, lambda, momentum, 1.0 - momentum, set.of("eps")])
            }),
            _ => None,
        }
    }

    /// The parameters of one add, as kernels take them.
    pub fn numbers(&self, options: &AddOptions) -> [f64; NUMBERS] {
        (self.numbers)(&OptionValues(options))
    }

    /// Whether the formula depends on the row's number of updates.
    pub fn counts_steps(&self) -> bool {
        self.counts_steps
    }

    /// Whether adds to one row may be applied in any order, concurrently: sums, of types for which the hardware has atomic adds.
    pub fn any_order(&self, dtype: DType) -> bool {
        matches!(self.rule, "Add" | "Sgd") && !matches!(dtype, DType::F16 | DType::BF16)
    }

    /// The macros that `update.cu` needs for a table of this type.
    pub fn macros(&self, dtype: DType) -> Vec<String> {
        let (element, state) = match dtype {
            DType::F32 => ("float", "float"),
            DType::F64 => ("double", "double"),
            DType::F16 => ("f16", "float"),
            DType::BF16 => ("bf16", "float"),
            DType::I64 => ("Count", "Count"),
            _ => ("Word", "Word"),
        };
        let mut macros =
            vec![format!("ELEMENT={element}"), format!("STATE={state}"), format!("RULE={}", self.rule)];
        // The kernels check that their structures have these sizes.
        let sizes = [("NUMBERS", NUMBERS), ("SCALES", SCALES), ("MAX_PLANES", PLANES)];
        macros.extend(sizes.map(|(name, size)| format!("{name}={size}")));
        macros.extend((!dtype.is_float()).then(|| "INTEGER=1".into()));
        macros.extend(self.counts_steps().then(|| "STEPS=1".into()));
        macros.extend(self.any_order(dtype).then(|| "ATOMIC=1".into()));
        macros
    }
}

/// Rejects tables that are not supported in device memory.
pub(crate) fn validate(kind: TableKind, options: &TableOptions) -> Result<()> {
    if options.device.is_none() {
        return Ok(());
    }
    let reject = |what: String, advice: &str| Err(Error::unsupported("table", what, advice));
    if !matches!(kind, TableKind::Array | TableKind::Matrix | TableKind::SparseMatrix) {
        let what = format!("a {} table in device memory", kind.name());
        return reject(what, "leave `device` out: its calls take arrays on a device all the same");
    }
    if options.consistency == Consistency::Average {
        let what = "consistency average in device memory".into();
        return reject(what, "leave `device` out, or use another consistency");
    }
    if !options.updater.is_built_in() || Formula::of(options.updater.name()).is_none() {
        let what = format!("the updater {:?} in device memory", options.updater.name());
        return reject(what, "use a built-in updater, or leave `device` out");
    }
    Ok(())
}
