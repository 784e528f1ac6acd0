//! Learning rules against the cases that all implementations of update rules share: `tests/optimizers`.

use serde_json::Value;
use unisono_nn::Experiment;

const TEXT: &str = "{epochs: 1, batch_size: 10, data: iris, model: {type: network, cost: sum_of_squares, \
                    layers: [{type: fully_connected, outputs: 3}]}}";

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn rules_give_the_numbers_that_all_implementations_give() {
    let file: Value = serde_json::from_str(include_str!("../../../tests/optimizers/cases.json")).unwrap();
    let mut types = std::collections::BTreeSet::new();
    for case in file["cases"].as_array().unwrap() {
        let name = case["rule"].as_str().unwrap();
        let mut keys = format!("type: {name}");
        types.insert(name);
        for (key, value) in case["options"].as_object().unwrap() {
            keys += &format!(", {key}: {value}");
        }
        let change = format!("rule={{{keys}}}");
        let experiment = Experiment::parse("case.yaml", TEXT, std::slice::from_ref(&change)).expect(&change);
        let rule = &experiment.layers[0].rule;
        let (mut weights, mut state) = (numbers(&file["initial"]), Vec::new());
        let steps = file["gradients"].as_array().unwrap().iter().zip(case["expected"].as_array().unwrap());
        for (step, (gradient, expected)) in steps.enumerate() {
            rule.update(&mut weights, &mut numbers(gradient), &mut state, 0, step as u64);
            for (found, expected) in weights.iter().zip(numbers(expected)) {
                let allowed = 1e-17 + 1e-13 * expected.abs();
                assert!(
                    (found - expected).abs() <= allowed,
                    "{change}, step {step}: {found} instead of {expected}"
                );
            }
        }
    }
    let known: std::collections::BTreeSet<_> =
        unisono_nn::Rule::UPDATERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(types, known, "every rule has a case");
}

#[test]
fn sgd_with_a_momentum_is_the_rule_of_that_name() {
    let rule = |change: &str| {
        let change = format!("rule={change}");
        Experiment::parse("sgd.yaml", TEXT, std::slice::from_ref(&change)).expect(&change).layers[0]
            .rule
            .clone()
    };
    for (sgd, named) in [
        ("{type: sgd, lr: 0.5, momentum: 0.25}", "{type: momentum, lr: 0.5, momentum: 0.25}"),
        (
            "{type: sgd, lr: 0.5, momentum: 0.25, nesterov: true, weight_decay: 0.125}",
            "{type: nesterov_momentum, rate: 0.5, coefficient: 0.25, decay: 0.125}",
        ),
        ("{type: sgd, lr: 0.5}", "{type: gradient_descent, learning_rate: 0.5}"),
        (
            "{type: adam, betas: [0.5, 0.75], eps: 0.125}",
            "{type: adam, beta1: 0.5, beta2: 0.75, epsilon: 0.125}",
        ),
    ] {
        assert_eq!(rule(sgd), rule(named), "{sgd}");
    }
}
