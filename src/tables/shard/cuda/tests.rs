//! Tests that need no device: every kernel compiles, and every built-in updater has a formula.

use super::formula::Formula;
use super::kernels::{ROWS, UPDATE};
use crate::cuda::compiler::compiles;
use crate::memory::DType;
use crate::tables::{ArrayTable, Consistency, Role, TableOptions, Tables, UpdaterChoice};
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
