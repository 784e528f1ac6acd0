//! Every built-in rule on every type against its formula computed one by one in double precision, and by hand.

use std::sync::Arc;

use half::{bf16, f16};
use proptest::prelude::*;

use super::rule::{Rule, untyped};
use super::*;
use crate::Kind;
use crate::memory::{DType, Real};
use crate::tables::UpdaterChoice;

/// Values and state of one unit, as a shard keeps them.
struct Unit {
    rule: Arc<dyn Rule>,
    dtype: DType,
    values: Vec<u64>,
    shared: Vec<Vec<u64>>,
    workers: Vec<Vec<Vec<u64>>>,
    length: usize,
    step: u64,
}

/// Numbers as bytes of a type; in words of eight bytes, so that they are aligned for all.
fn store(dtype: DType, numbers: &[f64]) -> Vec<u64> {
    let mut words = vec![0u64; (numbers.len() * dtype.size()).div_ceil(8)];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for (place, &number) in bytes.chunks_exact_mut(dtype.size()).zip(numbers) {
        match dtype {
            DType::F32 => place.copy_from_slice(&(number as f32).to_ne_bytes()),
            DType::F64 => place.copy_from_slice(&number.to_ne_bytes()),
            DType::F16 => place.copy_from_slice(&f16::from_f64(number).to_ne_bytes()),
            DType::BF16 => place.copy_from_slice(&bf16::from_f64(number).to_ne_bytes()),
            DType::I32 => place.copy_from_slice(&(number as i32).to_ne_bytes()),
            DType::I64 => place.copy_from_slice(&(number as i64).to_ne_bytes()),
            DType::I8 | DType::U8 => panic!("no table has this type"),
        }
    }
    words
}

fn load(dtype: DType, words: &[u64], length: usize) -> Vec<f64> {
    let bytes = &bytemuck::cast_slice::<u64, u8>(words)[..length * dtype.size()];
    let number = |place: &[u8]| match dtype {
        DType::F32 => f32::from_ne_bytes(place.try_into().unwrap()).into(),
        DType::F64 => f64::from_ne_bytes(place.try_into().unwrap()),
        DType::F16 => f16::from_ne_bytes(place.try_into().unwrap()).into(),
        DType::BF16 => bf16::from_ne_bytes(place.try_into().unwrap()).into(),
        DType::I32 => i32::from_ne_bytes(place.try_into().unwrap()).into(),
        DType::I64 => i64::from_ne_bytes(place.try_into().unwrap()) as f64,
        DType::I8 | DType::U8 => panic!("no table has this type"),
    };
    bytes.chunks_exact(dtype.size()).map(number).collect()
}

fn bytes(words: &mut [u64], length: usize) -> &mut [u8] {
    &mut bytemuck::cast_slice_mut(words)[..length]
}

impl Unit {
    fn new(name: &str, dtype: DType, initial: &[f64], workers: usize) -> Unit {
        let rule = UpdaterChoice::named(name).unwrap().rule(dtype).unwrap();
        let plane = || store(rule.state_dtype(), &vec![0.0; initial.len()]);
        Unit {
            values: store(dtype, initial),
            shared: (0..rule.shared_planes()).map(|_| plane()).collect(),
            workers: (0..workers).map(|_| (0..rule.worker_planes()).map(|_| plane()).collect()).collect(),
            dtype,
            length: initial.len(),
            step: 0,
            rule,
        }
    }

    fn add(&mut self, worker: usize, delta: &[f64], options: &AddOptions) -> Vec<f64> {
        self.step += 1;
        let options = self.rule.options(options).unwrap();
        let context = UpdateContext { worker, step: self.step, options: &options };
        let state_length = self.length * self.rule.state_dtype().size();
        let planes = self.shared.iter_mut().chain(&mut self.workers[worker]);
        let mut state: Vec<&mut [u8]> = planes.map(|plane| bytes(plane, state_length)).collect();
        let mut delta = store(self.dtype, delta);
        let length = self.length * self.dtype.size();
        self.rule.update(bytes(&mut self.values, length), &mut state, bytes(&mut delta, length), &context);
        self.values()
    }

    fn values(&self) -> Vec<f64> {
        load(self.dtype, &self.values, self.length)
    }
}

/// One weight by the formula, in double precision; every worker has its own part of the state.
#[derive(Clone, Default)]
struct Naive {
    shared: [f64; 2],
    history: Vec<f64>,
    backup: Vec<Option<f64>>,
}

impl Naive {
    fn new(workers: usize) -> Naive {
        Naive { shared: [0.0; 2], history: vec![0.0; workers], backup: vec![None; workers] }
    }

    /// The new weight; `round` rounds to the table's type.
    fn add(
        &mut self,
        name: &str,
        w: f64,
        d: f64,
        round: impl Fn(f64) -> f64,
        context: &UpdateContext,
    ) -> f64 {
        let option = |name| context.options.get(name).unwrap();
        let (rate, own, [first, second]) = (|| option("learning_rate"), context.worker, &mut self.shared);
        match name {
            "add" => w + d,
            "sgd" => w - d,
            "momentum" => {
                *first = option("momentum") * *first + (1.0 - option("momentum")) * d;
                w - *first
            }
            "nesterov" => {
                *first = option("momentum") * *first + d;
                w - (option("momentum") * *first + d)
            }
            "adagrad" => {
                let g = d / rate();
                self.history[own] += g * g;
                w - option("rho") / (self.history[own] + option("epsilon")).sqrt() * g
            }
            "rmsprop" => {
                *first = option("rho") * *first + (1.0 - option("rho")) * d * d;
                w - rate() * d / (first.sqrt() + option("epsilon"))
            }
            "adam" => {
                let (b1, b2, t) = (option("beta1"), option("beta2"), context.step as i32);
                *first = b1 * *first + (1.0 - b1) * d;
                *second = b2 * *second + (1.0 - b2) * d * d;
                let (mean, square) = (*first / (1.0 - b1.powi(t)), *second / (1.0 - b2.powi(t)));
                w - rate() * mean / (square.sqrt() + option("epsilon"))
            }
            "ftrl" => {
                let (z, n) = (first, second);
                *z += d - ((*n + d * d).sqrt() - n.sqrt()) / option("alpha") * w;
                *n += d * d;
                let scale = (option("beta") + n.sqrt()) / option("alpha") + option("lambda2");
                match (*n > 0.0, z.abs() <= option("lambda1")) {
                    (false, _) => w,
                    (true, true) => 0.0,
                    (true, false) => (z.signum() * option("lambda1") - *z) / scale,
                }
            }
            "dcasgd" | "dcasgda" => {
                let g = d / rate();
                let mut lambda = option("lambda");
                if name == "dcasgda" {
                    let m = option("momentum");
                    self.history[own] = m * self.history[own] + (1.0 - m) * g * g;
                    lambda /= (self.history[own] + option("epsilon")).sqrt();
                }
                let missed = w - self.backup[own].unwrap_or(w);
                let w = w - rate() * (g + lambda * g * g * missed);
                self.backup[own] = Some(round(w));
                w
            }
            _ => panic!("no formula for {name}"),
        }
    }
}

/// Numbers that look random, between -1 and 1, some of them zero.
fn noise(length: usize, seed: usize) -> Vec<f64> {
    let mix = |i: usize| (i * 7 + seed * 13 + 5).wrapping_mul(2_654_435_761) >> 7 & 0xffff;
    (0..length).map(|i| if mix(i) % 11 == 0 { 0.0 } else { mix(i) as f64 / 32768.0 - 1.0 }).collect()
}

/// How far a result may be from the formula: relative to the type in which it is stored.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 1e-3,
        _ => 8e-3,
    }
}

fn compare(name: &str, dtype: DType, length: usize, workers: usize, steps: usize, options: &AddOptions) {
    let initial = noise(length, 1);
    let mut unit = Unit::new(name, dtype, &initial, workers);
    let filled = unit.rule.options(options).unwrap();
    let mut naive = vec![Naive::new(workers); length];
    let mut expected = unit.values();
    for step in 1..=steps {
        let worker = step * step % workers;
        let delta: Vec<f64> = noise(length, step + 1).iter().map(|number| number * 0.25).collect();
        let delta = load(dtype, &store(dtype, &delta), length);
        let found = unit.add(worker, &delta, options);
        let context = UpdateContext { worker, step: step as u64, options: &filled };
        for i in 0..length {
            let round = |number| load(dtype, &store(dtype, &[number]), 1)[0];
            expected[i] = naive[i].add(name, expected[i], delta[i], round, &context);
            let allowed = tolerance(dtype) * (1.0 + expected[i].abs());
            assert!(
                (found[i] - expected[i]).abs() <= allowed,
                "{name} on {dtype}, element {i} of {length}, step {step}: {} instead of {}",
                found[i],
                expected[i]
            );
            if dtype.size() == 2 {
                // The rounding of a half type would pile up, and hide a mistake in the formula.
                expected[i] = found[i];
                naive[i].backup[worker] = naive[i].backup[worker].map(|_| found[i]);
            }
        }
    }
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

#[test]
fn every_rule_follows_its_formula_on_every_type() {
    let unusual = AddOptions {
        learning_rate: Some(0.125),
        momentum: Some(0.5),
        rho: Some(0.25),
        lambda: Some(0.75),
        epsilon: Some(0.001),
        beta1: Some(0.25),
        beta2: Some(0.75),
        alpha: Some(0.5),
        beta: Some(0.5),
        lambda1: Some(0.125),
        lambda2: Some(0.25),
    };
    for name in UpdaterChoice::names() {
        for dtype in FLOATS {
            for (length, workers) in [(1, 1), (7, 2), (50, 3), (129, 4)] {
                compare(name, dtype, length, workers, 9, &unusual);
                compare(name, dtype, length, workers, 9, &AddOptions::default());
            }
        }
    }
}

proptest! {
    #[test]
    fn any_rule_at_any_length(
        rule in 0usize..10, dtype in 0usize..4, length in 0usize..300, workers in 1usize..4, steps in 1usize..6
    ) {
        let name = UpdaterChoice::names().nth(rule).unwrap();
        compare(name, FLOATS[dtype], length, workers, steps, &AddOptions::default());
    }
}

fn close(found: &[f64], expected: f64) {
    assert!((found[0] - expected).abs() < 1e-12, "{} instead of {expected}", found[0]);
}

fn options(pairs: &[(&str, f64)]) -> AddOptions {
    let mut options = AddOptions::default();
    pairs.iter().for_each(|(name, value)| options.set(name, *value).unwrap());
    options
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

    let mut unit = Unit::new("nesterov", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[1.0], &none), -1.9);
    close(&unit.add(0, &[1.0], &none), -4.61);

    // g = 1, then 2 by the same worker, then 1 by another one, whose history is its own.
    let mut unit = Unit::new("adagrad", DType::F64, &[0.0], 2);
    let first = 0.1 / 1.000001f64.sqrt();
    close(&unit.add(0, &[0.01], &none), -first);
    let second = 0.2 / 5.000001f64.sqrt();
    close(&unit.add(0, &[0.02], &none), -first - second);
    close(&unit.add(1, &[0.01], &none), -2.0 * first - second);

    let mut unit = Unit::new("rmsprop", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[2.0], &options(&[("rho", 0.75), ("epsilon", 1.0)])), -0.001);

    // The first step of adam has the length of the learning rate, whatever the gradient.
    let mut unit = Unit::new("adam", DType::F64, &[0.0], 1);
    close(&unit.add(0, &[100.0], &none), -0.001 * 100.0 / (100.0 + 1e-8));

    // The constants of the original's logistic regression: below lambda1 the weight stays zero.
    let original = options(&[("alpha", 0.005), ("beta", 1.0), ("lambda1", 5.0), ("lambda2", 0.002)]);
    let mut unit = Unit::new("ftrl", DType::F64, &[0.0], 1);
    assert_eq!(unit.add(0, &[3.0], &original)[0].to_bits(), 0, "zero without a sign");
    close(&unit.add(0, &[4.0], &original), -2.0 / (6.0 / 0.005 + 0.002));
}

#[test]
fn delays_are_compensated_from_the_second_add_of_a_worker_on() {
    let given = options(&[("learning_rate", 0.1), ("lambda", 0.1)]);
    let mut unit = Unit::new("dcasgd", DType::F64, &[1.0], 2);
    close(&unit.add(0, &[0.1], &given), 0.9);
    close(&unit.add(1, &[0.1], &given), 0.8);
    // g = 1, and the other worker has moved the weight by -0.1 since: 0.1 * (1 + 0.1 * -0.1).
    close(&unit.add(0, &[0.1], &given), 0.701);
    // Nobody has moved it since: a plain step.
    close(&unit.add(0, &[0.1], &given), 0.601);

    // A weight that was zero when the worker last saw it is a backup like any other.
    let mut unit = Unit::new("dcasgd", DType::F64, &[0.1], 2);
    close(&unit.add(0, &[0.1], &given), 0.0);
    close(&unit.add(1, &[-0.5], &given), 0.5);
    close(&unit.add(0, &[0.1], &given), 0.5 - 0.105);

    // Adaptive: g = 1, so with m = 0 the strength is 0.1 / sqrt(1 + 1e-7).
    let given = options(&[("learning_rate", 0.1), ("lambda", 0.1), ("momentum", 0.0)]);
    let mut unit = Unit::new("dcasgda", DType::F64, &[1.0], 2);
    unit.add(0, &[0.1], &given);
    unit.add(1, &[0.1], &given);
    close(&unit.add(0, &[0.1], &given), 0.7 + 0.1 * 0.1 * 0.1 / (1.0f64 + 1e-7).sqrt());
}

#[test]
fn ftrl_leaves_weights_without_a_gradient_alone() {
    let mut unit = Unit::new("ftrl", DType::F32, &[0.5, 0.5], 1);
    let found = unit.add(0, &[0.0, 1.0], &AddOptions::default());
    assert_eq!(found[0], 0.5);
    assert_ne!(found[1], 0.5);
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

#[test]
fn wrong_names_and_types_are_refused_with_advice() {
    let error = UpdaterChoice::named("momentun").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let text = error.to_string();
    assert!(text.contains("add, sgd, momentum") && text.contains("did you mean `momentum`?"), "{text}");
    let text = UpdaterChoice::named("gradient boosting").unwrap_err().to_string();
    assert!(text.contains("write your own"), "{text}");

    for name in UpdaterChoice::names() {
        let choice = UpdaterChoice::named(name).unwrap();
        for dtype in DType::ALL {
            let whole = matches!(dtype, DType::I32 | DType::I64);
            match choice.rule(dtype) {
                Ok(rule) => {
                    assert_eq!((rule.name(), rule.dtype()), (name, dtype));
                    assert!(dtype.is_float() || (whole && ["add", "sgd"].contains(&name)));
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Usage);
                    assert!(error.to_string().contains(&format!("`{name}`, received {dtype}")), "{error}");
                    assert_eq!(whole, error.to_string().contains("or the updater `add` or `sgd`"), "{error}");
                }
            }
        }
    }
}

#[test]
fn options_with_which_a_rule_cannot_work_are_refused() {
    for (name, option, value) in [
        ("momentum", "momentum", 1.0),
        ("nesterov", "momentum", -0.1),
        ("adagrad", "learning_rate", 0.0),
        ("adagrad", "epsilon", 1e-60),
        ("rmsprop", "rho", 1.5),
        ("adam", "beta2", 1.0 - 1e-12),
        ("adam", "learning_rate", -1.0),
        ("ftrl", "alpha", 0.0),
        ("ftrl", "lambda1", -5.0),
        ("dcasgd", "learning_rate", 0.0),
        ("dcasgda", "lambda", -0.1),
    ] {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        let text = rule.options(&options(&[(option, value)])).unwrap_err().to_string();
        assert!(text.contains(&format!("as {option} of the updater `{name}`")), "{text}");
        assert_eq!(rule.options(&AddOptions::default()).unwrap(), rule.defaults());
    }
    let rule = UpdaterChoice::default().rule(DType::F32).unwrap();
    assert!(rule.options(&AddOptions { rho: Some(f64::NAN), ..AddOptions::default() }).is_err());
}

/// An updater of a user, with more planes than any built-in rule: counts each kind of call.
struct Counting;

impl<T: TableElement<State: Real>> Updater<T> for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn shared_planes(&self) -> usize {
        1
    }
    fn worker_planes(&self) -> usize {
        2
    }
    fn update(&self, values: &mut [T], state: &mut [&mut [T::State]], delta: &[T], context: &UpdateContext) {
        assert_eq!((state.len(), values.len(), delta.len()), (3, 5, 5));
        for plane in state.iter_mut().flat_map(|plane| plane.iter_mut()) {
            *plane = *plane + T::State::from_f64(context.step as f64);
        }
        values.copy_from_slice(delta);
    }
}

#[test]
fn a_user_may_bring_an_updater() {
    let choice = UpdaterChoice::custom::<f16>(Arc::new(Counting));
    let text = choice.rule(DType::F32).err().unwrap().to_string();
    assert!(text.contains("elements of float16 for the updater `counting`, received float32"), "{text}");
    assert_eq!(format!("{choice:?}"), "UpdaterChoice(\"counting\")");

    let rule = choice.rule(DType::F16).unwrap();
    assert_eq!((rule.shared_planes(), rule.worker_planes(), rule.state_dtype()), (1, 2, DType::F32));
    let mut state = vec![vec![0f32; 5]; 3];
    let mut values = [f16::ZERO; 5];
    for step in 1..=3 {
        let context = UpdateContext { worker: 0, step, options: &AddOptions::default() };
        let mut planes: Vec<&mut [u8]> =
            state.iter_mut().map(|plane| bytemuck::cast_slice_mut(plane)).collect();
        let delta = [f16::from_f64(step as f64); 5];
        rule.update(
            bytemuck::cast_slice_mut(&mut values),
            &mut planes,
            bytemuck::cast_slice(&delta),
            &context,
        );
    }
    assert_eq!(state, vec![vec![6.0; 5]; 3]);
    assert_eq!(values, [f16::from_f64(3.0); 5]);
    assert_eq!(untyped::<f64, Counting>(Arc::new(Counting)).state_dtype(), DType::F64);
}

#[test]
fn the_guide_tells_every_rule_and_its_defaults() {
    let guide = include_str!("../../../docs/guide/updaters.md");
    for name in UpdaterChoice::names() {
        let row = guide.lines().find(|line| line.starts_with(&format!("| `{name}`")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let defaults = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap().defaults();
        let told: Vec<String> =
            defaults.iter().map(|(option, value)| format!("`{option}` {value}")).collect();
        let told = if told.is_empty() { "none".into() } else { told.join(", ") };
        assert!(row.ends_with(&format!("| {told} |")), "{row} does not end with {told}");
    }
}
