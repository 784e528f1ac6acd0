//! The cases that all implementations of update rules share: `tests/optimizers`.

use serde_json::Value;

use super::*;

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn pairs(map: &Value) -> Vec<(&str, f64)> {
    map.as_object().unwrap().iter().map(|(name, value)| (&**name, value.as_f64().unwrap())).collect()
}

#[test]
fn updaters_give_the_numbers_that_all_implementations_give() {
    let file: Value = serde_json::from_str(include_str!("../../../../tests/optimizers/cases.json")).unwrap();
    for (name, defaults) in file["defaults"].as_object().unwrap() {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        assert_eq!(rule.defaults(), options(&pairs(defaults)), "{name}");
    }
    let initial = numbers(&file["initial"]);
    for case in file["cases"].as_array().unwrap() {
        let name = case["rule"].as_str().unwrap();
        let mut given = options(&pairs(&case["options"]));
        // These updaters take steps: the worker has multiplied the gradient by its learning rate.
        let takes_steps = ["sgd", "momentum", "nesterov"].contains(&name);
        let scale = if takes_steps { given.lr.take().unwrap() } else { 1.0 };
        for (dtype, relative, absolute) in [(DType::F64, 1e-13, 1e-17), (DType::F32, 2e-6, 5e-8)] {
            let mut unit = Unit::new(name, dtype, &initial, 1);
            let steps =
                file["gradients"].as_array().unwrap().iter().zip(case["expected"].as_array().unwrap());
            for (step, (gradient, expected)) in steps.enumerate() {
                let delta: Vec<f64> = numbers(gradient).iter().map(|number| scale * number).collect();
                let found = unit.add(0, &delta, &given);
                for (found, expected) in found.into_iter().zip(numbers(expected)) {
                    let allowed = absolute + relative * expected.abs();
                    assert!(
                        (found - expected).abs() <= allowed,
                        "{name} with {given} on {dtype}, step {step}: {found} instead of {expected}"
                    );
                }
            }
        }
    }
}
