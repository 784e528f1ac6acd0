//! Benchmark results relative to a reference, with an optional target.

use std::ffi::OsString;
use std::process::Command;

use super::output::report_error;
use super::ranks::Row;
use super::size::time;
use crate::json::Json;

/// How a result is compared with its reference.
#[derive(Clone, Copy)]
pub(super) enum SpeedTarget {
    /// Takes at most this multiple of the reference's time.
    Times(f64),
    /// Is at least this many times as fast as the reference.
    Faster(f64),
    /// Takes at most this much longer, as a fraction of the reference's time.
    More(f64),
    /// No target; the time is shown as a multiple of the reference's.
    Open,
}

/// One line of the table.
pub(super) struct BenchFigure {
    pub name: &'static str,
    pub row: Row,
    pub reference: Row,
    pub target: SpeedTarget,
}

impl BenchFigure {
    /// The ratio of two times, in the unit of the target.
    fn ratio(&self, own: f64, reference: f64) -> f64 {
        match self.target {
            SpeedTarget::Times(_) | SpeedTarget::Open => own / reference,
            SpeedTarget::Faster(_) => reference / own,
            SpeedTarget::More(_) => (own / reference - 1.0).max(0.0),
        }
    }

    /// The ratios of the minima and of the medians.
    fn ratios(&self) -> (f64, f64) {
        let (row, reference) = (&self.row, &self.reference);
        (self.ratio(row.minimum, reference.minimum), self.ratio(row.median, reference.median))
    }

    fn reached(&self) -> bool {
        let (ratio, _) = self.ratios();
        match self.target {
            SpeedTarget::Times(most) | SpeedTarget::More(most) => ratio <= most,
            SpeedTarget::Faster(least) => ratio >= least,
            SpeedTarget::Open => true,
        }
    }

    fn show(&self, ratio: f64) -> String {
        match self.target {
            SpeedTarget::More(_) => format!("+{:.1} %", 100.0 * ratio),
            _ => format!("{ratio:.2} ×"),
        }
    }

    fn wanted(&self) -> String {
        let target = match self.target {
            SpeedTarget::Times(most) => format!("≤ {most} ×"),
            SpeedTarget::Faster(least) => format!("≥ {least} × faster"),
            SpeedTarget::More(most) => format!("≤ +{:.0} %", 100.0 * most),
            SpeedTarget::Open => return String::new(),
        };
        format!("{target} {}", if self.reached() { "yes" } else { "NO" })
    }
}

/// The title of a result, its group, what was measured, its reference, and its target.
pub(super) type FigureSpec = (&'static str, &'static str, &'static str, &'static str, SpeedTarget);

/// The results among `wanted` that the ranks have measured.
pub(super) fn figures(rows: &[Row], wanted: &[FigureSpec]) -> Vec<BenchFigure> {
    let find = |verb: &str, what: &str| rows.iter().find(|row| row.verb == verb && row.what == what).cloned();
    let figure = |&(name, verb, what, reference, target): &FigureSpec| {
        Some(BenchFigure { name, row: find(verb, what)?, reference: find(verb, reference)?, target })
    };
    wanted.iter().filter_map(figure).collect()
}

/// A table header and one line per result.
pub(super) fn lines(figures: &[BenchFigure]) -> String {
    let mut text = format!(
        "{:<38}{:>10}{:>10}{:>12}{:>10}{:>11}  {}\n",
        "what / reference", "minimum", "median", "reference", "reached", "by median", "wanted"
    );
    for figure in figures {
        let (ratio, by_median) = figure.ratios();
        text += &format!(
            "{:<38}{:>10}{:>10}{:>12}{:>10}{:>11}  {}\n",
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

/// The results as JSON.
pub(super) fn records(figures: &[BenchFigure]) -> Vec<Json> {
    let record = |figure: &BenchFigure| {
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
    figures.iter().map(record).collect()
}

/// Checks that a module of the Python package has what it needs; the module itself reports what is missing. The error is
/// the exit status.
pub(super) fn check_module(program: &[OsString]) -> Result<(), i32> {
    match Command::new(&program[0]).args(&program[1..]).arg("--check").status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.code().unwrap_or(1)),
        Err(error) => Err(report_error(1, &format!("cannot start {}: {error}", program[0].display()))),
    }
}
