//! Steps whose results were computed by hand, and properties of single rules or types.

use super::*;

fn close(found: &[f64], expected: f64) {
    assert!((found[0] - expected).abs() < 1e-12, "{} instead of {expected}", found[0]);
}

#[test]
fn steps_computed_by_hand() {
    let none = AddOptions::default();
    let mut unit = Unit::new("default", DType::F64, &[1.0], 2);
    close(&unit.add(0, &[0.5], &none), 1.5);
    close(&unit.add(1, &[0.5], &none), 2.0);

    let mut unit = Unit::new("sgd", DType::F64, &[1.0], 1);
    close(&unit.add(0, &[0.25], &none), 0.75);

    let mut unit = Unit::new("momentum_sgd", DType::F64, &[0.0], 2);
    close(&unit.add(0, &[1.0], &none), -0.1);
    close(&unit.add(1, &[1.0], &none), -0.29);
    close(&unit.add(0, &[1.0], &options(&[("momentum", 0.0)])), -1.29);

    let mut unit = Unit::new("momentum", DType::F64, &[0.0], 2);
    close(&unit.add(0, &[1.0], &none), -1.0);
    close(&unit.add(1, &[1.0], &none), -2.9);

    let mut unit = Unit::new("nesterov", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[1.0], &none), -1.9);
    close(&unit.add(0, &[1.0], &none), -4.61);

    // g = 1, then 2 by the same worker, then 1 by another one, which has its own history.
    let mut unit = Unit::new("multiverso_adagrad", DType::F64, &[0.0], 2);
    let first = 0.1 / 1.000001f64.sqrt();
    close(&unit.add(0, &[0.01], &none), -first);
    let second = 0.2 / 5.000001f64.sqrt();
    close(&unit.add(0, &[0.02], &none), -first - second);
    close(&unit.add(1, &[0.01], &none), -2.0 * first - second);

    // The workers share one sum: 0 + 9, then + 16. The second step has half the learning rate.
    let mut unit = Unit::new("adagrad", DType::F64, &[0.0], 2);
    let given = options(&[("eps", 1.0), ("lr_decay", 1.0)]);
    close(&unit.add(0, &[3.0], &given), -0.01 * 3.0 / 4.0);
    close(&unit.add(1, &[4.0], &given), -0.01 * 3.0 / 4.0 - 0.005 * 4.0 / 6.0);
    let mut unit = Unit::new("adagrad", DType::F64, &[0.0], 1);
    close(
        &unit.add(0, &[3.0], &options(&[("initial_accumulator_value", 16.0), ("eps", 1.0)])),
        -0.01 * 3.0 / 6.0,
    );

    let mut unit = Unit::new("rmsprop", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[2.0], &options(&[("alpha", 0.75), ("eps", 1.0)])), -0.01);

    // The first step of adam has the length of the learning rate, whatever the gradient.
    let mut unit = Unit::new("adam", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[100.0], &none), -0.001 * 100.0 / (100.0 + 1e-8));

    // As a decay, 0.5 * 0.25 of the weight, before the step of adam.
    let mut unit = Unit::new("adamw", DType::F64, &[2.0], 1);
    let given = options(&[("lr", 0.5), ("weight_decay", 0.25), ("eps", 1.0)]);
    close(&unit.add(0, &[3.0], &given), 1.75 - 0.5 * 3.0 / 4.0);

    // The largest of 3 + 1 and 1 + 1 after it, which fades to half: the mean is 1.5, then 0.25 of 3 and half of 1.
    let mut unit = Unit::new("adamax", DType::F64, &[0.0], 2);
    let given = options(&[("lr", 0.5), ("beta1", 0.5), ("beta2", 0.5), ("eps", 1.0)]);
    close(&unit.add(0, &[3.0], &given), -0.5 * 3.0 / 4.0);
    close(&unit.add(1, &[1.0], &given), -0.5 * 3.0 / 4.0 - 0.5 / 0.75 * 1.25 / 2.0);

    // S = 0.25 * 4, and D = 0: the step is 2 * sqrt(1) / sqrt(2).
    let mut unit = Unit::new("adadelta", DType::F64, &[0.0], 1);
    let given = options(&[("rho", 0.75), ("eps", 1.0)]);
    close(&unit.add(0, &[2.0], &given), -2.0f64.sqrt());

    // The blend is 0.1, then 0.9 * 0.01 - 0.1 * 0.08 = 0.001: the mean outweighs a small gradient against it.
    let mut unit = Unit::new("lion", DType::F64, &[1.0], 2);
    close(&unit.add(0, &[1.0], &options(&[("lr", 0.5), ("weight_decay", 0.25)])), 0.375);
    close(&unit.add(1, &[-0.08], &none), 0.3749);
    // m = 0.99 * 0.01 - 0.01 * 0.08 = 0.0091, so the blend is 0.00819 - 0.01.
    close(&unit.add(0, &[-0.1], &none), 0.375);

    // The constants of Multiverso's logistic regression: below lambda1 the weight stays zero.
    let original = options(&[("alpha", 0.005), ("beta", 1.0), ("lambda1", 5.0), ("lambda2", 0.002)]);
    let mut unit = Unit::new("ftrl", DType::F64, &[0.0], 1);
    assert_eq!(unit.add(0, &[3.0], &original)[0].to_bits(), 0, "zero without a sign");
    close(&unit.add(0, &[4.0], &original), -2.0 / (6.0 / 0.005 + 0.002));
}

#[test]
fn delays_are_compensated_from_the_second_add_of_a_worker_on() {
    let given = options(&[("lr", 0.1), ("lambda", 0.1)]);
    let mut unit = Unit::new("dcasgd", DType::F64, &[1.0], 2);
    close(&unit.add(0, &[0.1], &given), 0.9);
    close(&unit.add(1, &[0.1], &given), 0.8);
    // g = 1, and the other worker has moved the weight by -0.1 since: 0.1 * (1 + 0.1 * -0.1).
    close(&unit.add(0, &[0.1], &given), 0.701);
    // No other worker has moved it since: a plain step.
    close(&unit.add(0, &[0.1], &given), 0.601);

    // A weight that was zero when the worker last saw it is a backup like any other.
    let mut unit = Unit::new("dcasgd", DType::F64, &[0.1], 2);
    close(&unit.add(0, &[0.1], &given), 0.0);
    close(&unit.add(1, &[-0.5], &given), 0.5);
    close(&unit.add(0, &[0.1], &given), 0.5 - 0.105);

    // Adaptive: g = 1, so with m = 0 the strength is 0.1 / sqrt(1 + 1e-7).
    let given = options(&[("lr", 0.1), ("lambda", 0.1), ("momentum", 0.0)]);
    let mut unit = Unit::new("dcasgda", DType::F64, &[1.0], 2);
    unit.add(0, &[0.1], &given);
    unit.add(1, &[0.1], &given);
    close(&unit.add(0, &[0.1], &given), 0.7 + 0.1 * 0.1 * 0.1 / (1.0f64 + 1e-7).sqrt());
}

#[test]
fn an_alias_takes_precedence_over_the_options_of_the_table() {
    for (name, alias, option) in [("rmsprop", "rho", "alpha"), ("lion", "lambda", "weight_decay")] {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F64).unwrap();
        rule.check_used("w", &options(&[(alias, 0.25)])).unwrap();
        let table = rule.options(&options(&[(alias, 0.5)])).unwrap();
        assert_eq!((table.get(alias), table.get(option)), (None, Some(0.5)));
        // As a shard merges the options of an add with those of its table.
        let step = |given: &[(&str, f64)]| {
            let (mut value, mut plane) = ([1.0f64], [0.0f64]);
            let context = UpdateContext { worker: 0, step: 1, options: &options(given).or(&table) };
            let mut state = [bytemuck::cast_slice_mut(&mut plane)];
            rule.update(
                bytemuck::cast_slice_mut(&mut value),
                &mut state,
                bytemuck::cast_slice(&[2.0f64]),
                &context,
            );
            value
        };
        assert_eq!(step(&[(alias, 0.25)]), step(&[(option, 0.25)]));
        assert_ne!(step(&[(alias, 0.25)]), step(&[]));
    }
}

#[test]
fn ftrl_leaves_weights_without_a_gradient_alone() {
    let mut unit = Unit::new("ftrl", DType::F32, &[0.5, 0.5], 1);
    let found = unit.add(0, &[0.0, 1.0], &AddOptions::default());
    assert_eq!(found[0], 0.5);
    assert_ne!(found[1], 0.5);
}

#[test]
fn lion_moves_only_where_there_is_a_direction_and_shows_a_nan() {
    let mut unit = Unit::new("lion", DType::F32, &[0.5, 0.5, 0.5], 1);
    let found = unit.add(0, &[0.0, 1e-30, f64::NAN], &options(&[("lr", 0.25)]));
    assert_eq!(found[..2], [0.5, 0.25]);
    assert!(found[2].is_nan(), "{}", found[2]);
}

#[test]
fn adam_is_right_after_very_many_steps() {
    let mut unit = Unit::new("adam", DType::F32, &[0.0], 1);
    unit.step = 1 << 40;
    let found = unit.add(0, &[1.0], &AddOptions::default())[0];
    assert!((found + 0.001 * 0.1 / 0.001f64.sqrt()).abs() < 1e-6, "{found}");
}

#[test]
fn integers_take_add_and_sgd_and_wrap_around() {
    for (dtype, limit) in [(DType::I32, f64::from(i32::MAX)), (DType::I64, 2f64.powi(53))] {
        let initial: Vec<f64> = (0..41).map(f64::from).collect();
        let mut unit = Unit::new("add", dtype, &initial, 1);
        let found = unit.add(0, &initial, &AddOptions::default());
        assert!(found.iter().zip(&initial).all(|(found, initial)| *found == 2.0 * initial));
        let mut unit = Unit::new("sgd", dtype, &[limit], 1);
        assert_eq!(unit.add(0, &[limit], &AddOptions::default()), [0.0]);
    }
    let mut unit = Unit::new("add", DType::I32, &[f64::from(i32::MAX)], 1);
    assert_eq!(unit.add(0, &[1.0], &AddOptions::default()), [f64::from(i32::MIN)]);
}

#[test]
fn half_types_are_rounded_once() {
    // In bf16, 0.9 * 1 and 0.1 * 1 would each be rounded before their sum.
    let mut unit = Unit::new("nesterov", DType::BF16, &[0.0], 1);
    let found = unit.add(0, &[1.0], &AddOptions::default());
    assert_eq!(found, [f64::from(bf16::from_f32(-1.9))]);
    assert_eq!(unit.rule.state_dtype(), DType::F32);
}

#[test]
fn a_delta_may_lie_anywhere() {
    let rule = UpdaterChoice::named("add").unwrap().rule(DType::F32).unwrap();
    let (mut values, mut delta) = (vec![1.0f32; 9], vec![0u8]);
    delta.extend_from_slice(bytemuck::cast_slice(&[2.0f32; 9]));
    let context = UpdateContext { worker: 0, step: 1, options: &AddOptions::default() };
    rule.update(bytemuck::cast_slice_mut(&mut values), &mut [], &delta[1..], &context);
    assert_eq!(values, [3.0; 9]);
}
