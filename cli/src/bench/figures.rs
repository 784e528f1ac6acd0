//! Figures next to what they are compared with, and whether they are what is wanted of them.

use std::ffi::OsString;
use std::process::Command;

use super::ranks::{Row, report_error};
use super::size::time;
use crate::json::Json;

/// How a figure is compared with its reference.
#[derive(Clone, Copy)]
pub(super) enum SpeedTarget {
    /// It takes at most so many times as long.
    Times(f64),
    /// It is at least so many times as fast.
    Faster(f64),
    /// It takes at most this much longer, as a part of the reference.
    More(f64),
    /// Nothing is wanted: how many times as long it takes.
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
    /// The comparison, from two times.
    fn ratio(&self, own: f64, reference: f64) -> f64 {
        match self.target {
            SpeedTarget::Times(_) | SpeedTarget::Open => own / reference,
            SpeedTarget::Faster(_) => reference / own,
            SpeedTarget::More(_) => (own / reference - 1.0).max(0.0),
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

/// What a figure is called, its group, what was measured in it, its reference, and what is wanted.
pub(super) type FigureSpec = (&'static str, &'static str, &'static str, &'static str, SpeedTarget);

/// The figures that ranks have measured, of those that are wanted.
pub(super) fn figures(rows: &[Row], wanted: &[FigureSpec]) -> Vec<BenchFigure> {
    let find = |verb: &str, what: &str| rows.iter().find(|row| row.verb == verb && row.what == what).cloned();
    let figure = |&(name, verb, what, reference, target): &FigureSpec| {
        Some(BenchFigure { name, row: find(verb, what)?, reference: find(verb, reference)?, target })
    };
    wanted.iter().filter_map(figure).collect()
}

/// A line for each figure, under a head.
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

/// The figures for other programs.
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

/// Whether a module of the Python package has what it needs; it says itself what is missing. Otherwise the exit status.
pub(super) fn check_module(program: &[OsString]) -> Result<(), i32> {
    match Command::new(&program[0]).args(&program[1..]).arg("--check").status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.code().unwrap_or(1)),
        Err(error) => Err(report_error(1, &format!("cannot start {}: {error}", program[0].display()))),
    }
}
