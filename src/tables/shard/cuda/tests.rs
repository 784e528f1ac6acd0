//! Tests that need no device: every kernel compiles, and every built-in updater has a formula that fits its rule on the CPU.

use super::formula::{Formula, PLANES};
use super::kernels::{ROWS, UPDATE};
use crate::cuda::compiler::compiles;
use crate::memory::DType;
use crate::tables::{
    AddOptions, ArrayTable, Consistency, Role, TableOptions, Tables, UpdateContext, UpdaterChoice,
};
use crate::testing::spawn_on_hosts;

#[test]
fn every_kernel_compiles() {
    if !compiles(&ROWS, &[]) {
        return;
    }
    for name in UpdaterChoice::names() {
        let formula = Formula::of(name).unwrap();
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64] {
            // Compilation is slow: all rules for one type, and some rules for all types.
            let some = dtype == DType::F32 || ["add", "adam", "dcasgda"].contains(&name);
            if some && UpdaterChoice::named(name).unwrap().rule(dtype).is_ok() {
                let macros = formula.macros(dtype);
                compiles(&UPDATE, &macros.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }
}

/// Without a compiler too: a missing row or structure must not wait for a machine that has one.
#[test]
fn every_updater_has_a_formula_and_a_structure() {
    for name in UpdaterChoice::names() {
        let formula = Formula::of(name).unwrap_or_else(|| panic!("{name} has no row in formula.rs"));
        let macros = formula.macros(DType::F32);
        let structure = macros.iter().find_map(|one| one.strip_prefix("RULE=")).unwrap();
        assert!(UPDATE.code.contains(&format!("struct {structure} ")), "rules.cu has no {structure}");
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        assert!(rule.shared_planes() + rule.worker_planes() <= PLANES, "{name} has too many planes");
    }
}

/// Whether the CPU rule gives different results at different steps from equal values and state.
fn depends_on_the_step(name: &str) -> bool {
    let choice = UpdaterChoice::named(name).unwrap();
    let rule = choice.rule(DType::F64).unwrap();
    let planes = rule.shared_planes() + rule.worker_planes();
    let at_step = |step, options| {
        let (mut values, mut state) = ([0.75], vec![[0.25]; planes]);
        let mut slices: Vec<&mut [f64]> = state.iter_mut().map(|plane| &mut plane[..]).collect();
        let context = UpdateContext { worker: 0, step, options };
        choice.step(&mut values, &mut slices, &[0.5], &context).unwrap();
        (values, state)
    };
    // With adagrad's defaults the learning rate does not decay: the step matters for other options only.
    let mut halves = AddOptions::default();
    rule.uses().unwrap().into_iter().for_each(|option| halves.set(option, 0.5).unwrap());
    [rule.defaults(), halves]
        .iter()
        .any(|options| (2..=9).any(|step| at_step(step, options) != at_step(1, options)))
}

#[test]
fn formulas_count_steps_if_rules_depend_on_them() {
    for name in UpdaterChoice::names() {
        let (depends, counts) = (depends_on_the_step(name), Formula::of(name).unwrap().counts_steps());
        assert_eq!(depends, counts, "{name}: the CPU rule depends on the step, and formula.rs counts steps");
    }
}

#[test]
fn formulas_take_what_rules_compute() {
    let add = |name: &str| {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        Formula::of(name).unwrap().numbers(&rule.defaults())
    };
    let (log1, log2) = (0.9f64.ln(), 0.999f64.ln());
    assert_eq!(add("adamw"), [0.9, 0.999, 1e-8, 0.001, log1, log2, 1.0 - 0.001 * 0.01, 0.0]);
    assert_eq!(add("dcasgd")[0], 0.1 / 0.01);
    assert_eq!(add("add"), [0.0; 8]);
    assert!(Formula::of("sign_descent").is_none());
}

/// All ranks get the reason why the table cannot be created, whether this machine has a device or not.
#[test]
fn what_cannot_live_on_a_device_is_rejected() {
    spawn_on_hosts(2, 1, |world| {
        let tables = Tables::join(world, Role::Both).unwrap();
        let averages =
            TableOptions { device: Some(0), consistency: Consistency::Average, ..TableOptions::default() };
        let error = ArrayTable::<f32>::create(&tables, 4, None, averages).err().unwrap();
        assert!(error.to_string().contains("average in device memory"), "{error}");
        let none = TableOptions { device: Some(1000), ..TableOptions::default() };
        let error = ArrayTable::<f32>::create(&tables, 4, None, none).err().unwrap();
        assert!(error.to_string().contains("CUDA"), "{error}");
        let table = ArrayTable::<f32>::create(&tables, 4, None, TableOptions::default()).unwrap();
        table.add(&[1.0; 4]).unwrap();
        tables.barrier().unwrap();
    });
}
