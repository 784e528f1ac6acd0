//! `unisono bench nn`: one training step of two convolutional networks, per layer and on several processes.

mod scaling;

use std::ffi::OsString;

use clap::Args;
use rustix::time::{ClockId, clock_gettime};
use unisono_nn::{Experiment, Layer, Network, Pass, RandomStream, Shape};

use super::figures::{FigureSpec, SpeedTarget, figures, lines, records};
use super::output::{BenchOutput, install_signals};
use super::ranks::run_bench_ranks;
use crate::json::Json;
use crate::stdout;
pub(super) use scaling::measure_steps;

#[derive(Args)]
pub(super) struct NnBenchArgs {
    /// Batch size.
    #[arg(long, value_name = "N", default_value = "128", value_parser = crate::run::positive)]
    batch: usize,
    /// Threads used by each layer.
    #[arg(long, value_name = "N", default_value = "1", value_parser = crate::run::positive)]
    threads: usize,
    /// Approximate measuring time per network, in seconds.
    #[arg(long, value_name = "S", default_value = "5")]
    seconds: f64,
    /// Number of processes to compare with one, each with one thread; 1 skips the comparison.
    #[arg(long, value_name = "N", default_value = "2", value_parser = crate::run::rank_count)]
    ranks: usize,
    /// Show the time of every layer.
    #[arg(long)]
    layers: bool,
    #[command(flatten)]
    output: BenchOutput,
}

/// The networks of `experiments/`, on random numbers: speed does not depend on the content of the images.
const NETWORKS: &[(&str, [usize; 3], &str)] = &[
    ("mnist", [1, 28, 28], include_str!("mnist_convnet.yaml")),
    ("cifar10", [3, 32, 32], include_str!("cifar10_convnet.yaml")),
];

/// Speedup targets of two processes over one.
const FIGURES: [FigureSpec; 2] = [
    ("data: all / one", "data", "all", "one", SpeedTarget::Faster(1.7)),
    ("halo, 128 x 128: all / one", "halo", "all", "one", SpeedTarget::Faster(1.5)),
];

/// CPU seconds for one thread, which other programs disturb less; wall-clock seconds for several.
fn now(threads: usize) -> f64 {
    let clock = if threads == 1 { ClockId::ThreadCPUTime } else { ClockId::Monotonic };
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

struct Bench {
    network: Network<f32>,
    inputs: Vec<f32>,
    targets: Vec<f32>,
}

impl Bench {
    fn new(text: &str, [maps, rows, columns]: [usize; 3], batch: usize) -> unisono::Result<Bench> {
        let experiment = Experiment::parse("bench", text, &[])?;
        let shape = Shape::new(maps, rows, columns);
        let network = experiment.network(shape, 10)?;
        let stream = RandomStream::new(1, "bench");
        let inputs = (0..batch * shape.size()).map(|index| stream.uniform(index as u64) as f32).collect();
        let mut targets = vec![0.0; batch * 10];
        (0..batch).for_each(|sample| targets[sample * 10 + sample % 10] = 1.0);
        Ok(Bench { network, inputs, targets })
    }

    /// Forward, backward and update; returns the cost before the update.
    fn step(&mut self, pass: &Pass<'_, f32>) -> unisono::Result<f64> {
        self.network.fprop(pass, &self.inputs)?;
        let cost = self.network.value(pass, &self.targets)?;
        self.network.bprop(pass, &self.inputs, &self.targets, pass.batch, 0)?;
        self.network.update(0, 0);
        Ok(cost)
    }

    /// The minimum seconds that each layer takes forward, backward and for its update, over `rounds` passes.
    fn layers(&mut self, pass: &Pass<'_, f32>, rounds: u32) -> unisono::Result<Vec<(String, [f64; 3])>> {
        let mut inputs = self.inputs.clone();
        let mut seconds = Vec::new();
        for (index, layer) in self.network.layers().iter_mut().enumerate() {
            let layer: &mut dyn Layer<f32> = &mut **layer;
            let mut outputs = vec![0.0; pass.batch * layer.output().size()];
            let mut error = vec![0.0; inputs.len()];
            let mut spent = [f64::INFINITY; 3];
            for _ in 0..rounds {
                let mut time = |at: usize, work: &mut dyn FnMut() -> unisono::Result<()>| {
                    let started = now(pass.threads);
                    let done = work();
                    spent[at] = spent[at].min(now(pass.threads) - started);
                    done
                };
                time(0, &mut || layer.fprop(pass, &inputs, &mut outputs))?;
                let wanted = index > 0;
                time(1, &mut || {
                    layer.bprop(pass, &inputs, &outputs, &outputs, wanted.then_some(&mut error[..]))
                })?;
                layer.weights().into_iter().for_each(|weight| weight.gradient.fill(0.0));
                time(2, &mut || {
                    layer.update(0);
                    Ok(())
                })?;
            }
            seconds.push((layer.name().to_string(), spent));
            inputs = outputs;
        }
        Ok(seconds)
    }
}

pub(super) fn run(options: &NnBenchArgs, this_program: &[OsString]) -> Result<(), i32> {
    let mut results = measure_networks(options).map_err(|error| crate::train::failed(&error))?;
    if options.ranks > 1 {
        results.extend(measure_ranks(options, this_program)?);
    }
    options.output.write_bare(&Json::List(results))
}

/// Steps on several processes, in turn with steps on one.
fn measure_ranks(options: &NnBenchArgs, this_program: &[OsString]) -> Result<Vec<Json>, i32> {
    let mut signals = install_signals()?;
    let arguments = ["nn".to_string(), options.seconds.to_string(), options.batch.to_string()];
    let arguments = arguments.into_iter().map(OsString::from).collect();
    let rows = run_bench_ranks(options.ranks, arguments, this_program, &mut signals)?;
    stdout::line(format_args!(
        "one training step on {} processes with one thread each, in turns with one process",
        options.ranks
    ));
    let mut wanted = FIGURES;
    if options.ranks != 2 {
        wanted.iter_mut().for_each(|(.., target)| *target = SpeedTarget::Open);
    }
    let figures = figures(&rows, &wanted);
    stdout::bytes(lines(&figures).as_bytes());
    Ok(records(&figures))
}

fn measure_networks(options: &NnBenchArgs) -> unisono::Result<Vec<Json>> {
    let pass = Pass { threads: options.threads, ..Pass::alone(options.batch, true, 0) };
    let mut results = Vec::new();
    let (batch, threads) = (options.batch, options.threads);
    stdout::line(format_args!("one training step, batch {batch}, threads {threads}, f32"));
    stdout::line(format_args!("{:<10} {:>12} {:>12} {:>14}", "network", "best", "median", "samples/s"));
    for (name, shape, text) in NETWORKS {
        let mut bench = Bench::new(text, *shape, options.batch)?;
        let first = bench.step(&pass)?;
        let mut times = Vec::new();
        let started = now(options.threads);
        let mut costs = Vec::new();
        while times.len() < 5 || now(options.threads) - started < options.seconds {
            let begin = now(options.threads);
            costs.push(bench.step(&pass)?);
            times.push(now(options.threads) - begin);
        }
        // Not only the last cost: on random numbers it may be rising.
        let fell = costs.iter().any(|cost| *cost < first);
        if !fell || costs.iter().any(|cost| cost.is_nan()) {
            let received = format!("{} after {first}", costs[costs.len() - 1]);
            return Err(unisono::Error::internal(
                "bench nn",
                format!("the cost of {name} did not fall: {received}"),
            ));
        }
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[times.len() / 2]);
        let speed = options.batch as f64 / median;
        let (best_ms, median_ms) = (best * 1e3, median * 1e3);
        stdout::line(format_args!("{name:<10} {best_ms:>9.2} ms {median_ms:>9.2} ms {speed:>14.0}"));
        results.push(Json::Object(vec![
            ("network", (*name).into()),
            ("batch", options.batch.into()),
            ("threads", options.threads.into()),
            ("best_seconds", best.into()),
            ("median_seconds", median.into()),
            ("steps", times.len().into()),
        ]));
        if options.layers {
            for (layer, [forward, backward, update]) in bench.layers(&pass, 10)? {
                let [forward, backward, update] = [forward, backward, update].map(|seconds| seconds * 1e3);
                stdout::line(format_args!("  {layer:<20} {forward:>8.2} {backward:>8.2} {update:>8.2} ms"));
            }
        }
    }
    Ok(results)
}
