//! Every built-in rule on every float type against its formula, computed element by element in double precision.

use proptest::prelude::*;

use super::*;

/// One weight by the formula, in double precision, with separate state for every worker.
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
        let (rate, own, [first, second]) = (|| option("lr"), context.worker, &mut self.shared);
        match name {
            "add" => w + d,
            "sgd" => w - d,
            "momentum" => {
                *first = option("momentum") * *first + d;
                w - *first
            }
            "multiverso_momentum" => {
                *first = option("momentum") * *first + (1.0 - option("momentum")) * d;
                w - *first
            }
            "nesterov" => {
                *first = option("momentum") * *first + d;
                w - (option("momentum") * *first + d)
            }
            "adagrad" => {
                *first += d * d;
                let rate = rate() / (1.0 + (context.step - 1) as f64 * option("lr_decay"));
                w - rate * d / ((option("initial_accumulator_value") + *first).sqrt() + option("eps"))
            }
            "multiverso_adagrad" => {
                let g = d / rate();
                self.history[own] += g * g;
                w - option("rho") / (self.history[own] + option("eps")).sqrt() * g
            }
            "rmsprop" => {
                *first = option("alpha") * *first + (1.0 - option("alpha")) * d * d;
                w - rate() * d / (first.sqrt() + option("eps"))
            }
            "adadelta" => {
                let (rho, eps) = (option("rho"), option("eps"));
                *first = rho * *first + (1.0 - rho) * d * d;
                let u = d * (*second + eps).sqrt() / (*first + eps).sqrt();
                *second = rho * *second + (1.0 - rho) * u * u;
                w - rate() * u
            }
            "adamax" => {
                let (b1, t) = (option("beta1"), context.step as i32);
                *first = b1 * *first + (1.0 - b1) * d;
                *second = (option("beta2") * *second).max(d.abs() + option("eps"));
                w - rate() / (1.0 - b1.powi(t)) * *first / *second
            }
            "adam" | "adamw" => {
                let w = if name == "adamw" { w - rate() * option("weight_decay") * w } else { w };
                let (b1, b2, t) = (option("beta1"), option("beta2"), context.step as i32);
                *first = b1 * *first + (1.0 - b1) * d;
                *second = b2 * *second + (1.0 - b2) * d * d;
                let (mean, square) = (*first / (1.0 - b1.powi(t)), *second / (1.0 - b2.powi(t)));
                w - rate() * mean / (square.sqrt() + option("eps"))
            }
            "lion" => {
                let (b1, b2) = (option("beta1"), option("beta2"));
                let blend = b1 * *first + (1.0 - b1) * d;
                *first = b2 * *first + (1.0 - b2) * d;
                let direction = if blend == 0.0 { 0.0 } else { blend.signum() };
                w - rate() * (direction + option("weight_decay") * w)
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
                    lambda /= (self.history[own] + option("eps")).sqrt();
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

/// Pseudo-random numbers between -1 and 1, some of them zero.
fn noise(length: usize, seed: usize) -> Vec<f64> {
    let mix = |i: usize| (i * 7 + seed * 13 + 5).wrapping_mul(2_654_435_761) >> 7 & 0xffff;
    (0..length).map(|i| if mix(i) % 11 == 0 { 0.0 } else { mix(i) as f64 / 32768.0 - 1.0 }).collect()
}

/// The allowed deviation from the formula, relative to the precision of the stored type.
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
                // Rounding errors of a half type would accumulate and hide an error in the formula.
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
        lr: Some(0.125),
        momentum: Some(0.5),
        rho: Some(0.25),
        lambda: Some(0.75),
        eps: Some(0.001),
        beta1: Some(0.25),
        beta2: Some(0.75),
        alpha: Some(0.5),
        beta: Some(0.5),
        lambda1: Some(0.125),
        lambda2: Some(0.25),
        lr_decay: Some(0.5),
        initial_accumulator_value: Some(0.125),
        weight_decay: Some(0.375),
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
        rule in 0..UpdaterChoice::names().count(), dtype in 0usize..4, length in 0usize..300, workers in 1usize..4, steps in 1usize..6
    ) {
        let name = UpdaterChoice::names().nth(rule).unwrap();
        compare(name, FLOATS[dtype], length, workers, steps, &AddOptions::default());
    }
}
