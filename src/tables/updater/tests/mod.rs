//! Every built-in rule on every type against its formula, computed element by element in double precision, and by hand.

mod by_hand;
mod cases;
mod custom;
mod formulas;
mod mistakes;

use std::sync::Arc;

use half::{bf16, f16};

use super::rule::UpdateRule;
use super::*;
use crate::memory::DType;
use crate::tables::UpdaterChoice;

/// Values and state of one unit, as stored in a shard.
struct Unit {
    rule: Arc<dyn UpdateRule>,
    dtype: DType,
    values: Vec<u64>,
    shared: Vec<Vec<u64>>,
    workers: Vec<Vec<Vec<u64>>>,
    length: usize,
    step: u64,
}

/// Numbers as bytes of a type; stored in 8-byte words, so that they are aligned for every type.
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
            _ => panic!("no table has this type"),
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
        _ => panic!("no table has this type"),
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

fn options(pairs: &[(&str, f64)]) -> AddOptions {
    let mut options = AddOptions::default();
    pairs.iter().for_each(|(name, value)| options.set(name, *value).unwrap());
    options
}

#[test]
fn the_guide_tells_every_rule_and_its_defaults() {
    let guide = include_str!("../../../../docs/guide/updaters.md");
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
