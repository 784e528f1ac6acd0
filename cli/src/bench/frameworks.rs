//! `unisono bench frameworks`: a PyTorch model's parameters and gradients between real processes, each next to what it
//! is compared with in the same run.

use std::ffi::OsString;
use std::process::Command;

use super::FrameworkBench;
use super::ranks::{Row, complain, gather_from};
use super::size::{Size, time};
use crate::json::Json;
use crate::launcher::Signals;
use crate::run::python;

/// The module of the Python package that a rank runs.
const MODULE: &str = "unisono.bench.frameworks";

/// How a figure is compared with its reference.
#[derive(Clone, Copy)]
enum Target {
    /// It takes at most so many times as long.
    Times(f64),
    /// It is at least so many times as fast.
    Faster(f64),
    /// It takes at most this much longer, as a part of the reference.
    More(f64),
}

/// One line of the table.
struct Figure {
    name: &'static str,
    row: Row,
    reference: Row,
    target: Target,
}

impl Figure {
    /// The comparison, from two times.
    fn ratio(&self, own: f64, reference: f64) -> f64 {
        match self.target {
            Target::Times(_) => own / reference,
            Target::Faster(_) => reference / own,
            Target::More(_) => (own / reference - 1.0).max(0.0),
        }
    }

    /// By the minimum and by the median.
    fn ratios(&self) -> (f64, f64) {
        let (row, reference) = (&self.row, &self.reference);
        (self.ratio(row.minimum, reference.minimum), self.ratio(row.median, reference.median))
    }

    fn reached(&self) -> bool {
        let (ratio, _) = self.ratios();
        match self.target {
            Target::Times(most) | Target::More(most) => ratio <= most,
            Target::Faster(least) => ratio >= least,
        }
    }

    fn show(&self, ratio: f64) -> String {
        match self.target {
            Target::More(_) => format!("+{:.1} %", 100.0 * ratio),
            _ => format!("{ratio:.2} ×"),
        }
    }

    fn wanted(&self) -> String {
        let target = match self.target {
            Target::Times(most) => format!("≤ {most} ×"),
            Target::Faster(least) => format!("≥ {least} × faster"),
            Target::More(most) => format!("≤ +{:.0} %", 100.0 * most),
        };
        format!("{target} {}", if self.reached() { "yes" } else { "NO" })
    }
}

pub(super) fn run(options: &FrameworkBench, this_program: &[OsString]) -> i32 {
    let Some(python) = python(this_program) else {
        return complain(1, "bench frameworks needs Python, but there is no python3 on PATH; install Python");
    };
    let mut program = vec![python.into_os_string(), "-m".into(), MODULE.into()];
    // Said once, and not by every rank: whether the package and PyTorch are there.
    match Command::new(&program[0]).args(&program[1..]).arg("--check").status() {
        Ok(status) if status.success() => {}
        Ok(status) => return status.code().unwrap_or(1),
        Err(error) => return complain(1, &format!("cannot start {}: {error}", program[0].display())),
    }
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return complain(1, &format!("cannot listen to signals: {error}")),
    };
    program.extend(["--parameters".into(), options.parameters.to_string().into()]);
    program.extend(["--seconds".into(), options.seconds.to_string().into()]);
    let rows = match gather_from(program, options.workers, this_program, &mut signals) {
        Ok(rows) => rows,
        Err(status) => return status,
    };
    let figures = figures(&rows);
    println!("{}", table(&figures, options.workers));
    match options.json.as_ref().map(|file| std::fs::write(file, format!("{}\n", json(&figures)))) {
        Some(Err(error)) => complain(1, &format!("--json {:?}: {error}", options.json)),
        _ => 0,
    }
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let find = |verb: &str, what: &str| rows.iter().find(|row| row.verb == verb && row.what == what).cloned();
    let wanted = [
        ("sync / copy out and back", "sync", "sync", "copies", Target::Times(2.5)),
        ("average_gradients / Gloo", "gradients", "average_gradients", "gloo", Target::Faster(3.0)),
        ("step with background sync / step", "background", "step_and_sync", "step", Target::More(0.02)),
    ];
    wanted
        .into_iter()
        .filter_map(|(name, verb, what, reference, target)| {
            Some(Figure { name, row: find(verb, what)?, reference: find(verb, reference)?, target })
        })
        .collect()
}

fn table(figures: &[Figure], workers: usize) -> String {
    let mut text = format!(
        "a PyTorch model with {} of parameters, {workers} workers on {} cores, one thread each;\n\
         all workers at once, in turns with the reference; in a step of 100 ms the processor waits\n",
        figures.first().map_or(Size(0), |figure| Size(figure.row.size)),
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    text += &format!(
        "{:<34}{:>10}{:>10}{:>12}{:>10}{:>11}  {}\n",
        "what / reference", "minimum", "median", "reference", "reached", "by median", "wanted"
    );
    for figure in figures {
        let (ratio, by_median) = figure.ratios();
        text += &format!(
            "{:<34}{:>10}{:>10}{:>12}{:>10}{:>11}  {}\n",
            figure.name,
            time(figure.row.minimum),
            time(figure.row.median),
            time(figure.reference.minimum),
            figure.show(ratio),
            figure.show(by_median),
            figure.wanted(),
        );
    }
    text
}

fn json(figures: &[Figure]) -> Json {
    let record = |figure: &Figure| {
        let (ratio, by_median) = figure.ratios();
        Json::Object(vec![
            ("workers", figure.row.ranks.into()),
            ("name", figure.name.into()),
            ("size", figure.row.size.into()),
            ("minimum_seconds", figure.row.minimum.into()),
            ("median_seconds", figure.row.median.into()),
            ("repetitions", figure.row.repetitions.into()),
            ("reference_minimum_seconds", figure.reference.minimum.into()),
            ("reference_median_seconds", figure.reference.median.into()),
            ("ratio", ratio.into()),
            ("ratio_by_median", by_median.into()),
            ("wanted", figure.wanted().as_str().into()),
        ])
    };
    Json::Object(vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("cores", std::thread::available_parallelism().map_or(1, usize::from).into()),
        ("results", Json::List(figures.iter().map(record).collect())),
    ])
}
