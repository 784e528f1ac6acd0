//! Results of the halo benchmark, each compared with its reference and target.

use unisono::halo::Plan;

use super::HaloArray;
use crate::bench::output::cores;
use crate::bench::ranks::Row;
use crate::bench::size::{Size, time};
use crate::json::Json;

/// One line of the table.
pub(super) struct HaloFigure {
    name: &'static str,
    row: Row,
    reference: Row,
    /// Target: at least this fraction of the reference's speed.
    wanted: Option<f64>,
}

impl HaloFigure {
    /// The speed as a fraction of the reference's: by minimum and by median.
    fn share(&self) -> (f64, f64) {
        (self.reference.minimum / self.row.minimum, self.reference.median / self.row.median)
    }
}

pub(super) fn figures(rows: &[Row]) -> Vec<HaloFigure> {
    let find = |verb: &str, what: &str| rows.iter().find(|row| row.verb == verb && row.what == what).cloned();
    let lines = [
        ("forward / copy of the padded bytes", "exchange", "forward", "copy", Some(0.6)),
        ("adjoint / copy of the part's bytes", "exchange", "adjoint", "copy_part", None),
        ("halos in place / copy of their bytes", "halo", "refresh", "copy", None),
        ("halos in place / the copies alone", "halo", "refresh", "alone", None),
        ("forward, then work / work", "overlap", "one_after_the_other", "work", None),
        ("forward behind work / work", "overlap", "overlapped", "work", None),
    ];
    let figure = |(name, verb, what, reference, wanted)| {
        Some(HaloFigure { name, row: find(verb, what)?, reference: find(verb, reference)?, wanted })
    };
    lines.into_iter().filter_map(figure).collect()
}

pub(super) fn table(figures: &[HaloFigure], plan: &Plan, array: &HaloArray) -> String {
    let received: usize = plan.sources().map(|(_, elements)| elements).sum();
    let bytes = |elements: usize| Size(elements * size_of::<f32>());
    let mut text = format!(
        "halo of {} around {:?} f32 on {:?} ranks, {} cores; all ranks at once, for the reference too;\n\
         a rank has {}, padded {}, of which {} come from others\n",
        array.halo,
        array.shape,
        array.grid,
        cores(),
        bytes(plan.own().elements()),
        bytes(plan.needed().elements()),
        bytes(received),
    );
    text += &format!(
        "{:<38}{:>10}{:>10}{:>12}{:>9}{:>11}  {}\n",
        "what / reference", "minimum", "median", "reference", "reached", "by median", "wanted"
    );
    for figure in figures {
        let (share, by_median) = figure.share();
        let verdict = |wanted: f64| if share >= wanted { "yes" } else { "NO" };
        text += &format!(
            "{:<38}{:>10}{:>10}{:>12}{:>8.0} %{:>9.0} %  {}\n",
            figure.name,
            time(figure.row.minimum),
            time(figure.row.median),
            time(figure.reference.minimum),
            100.0 * share,
            100.0 * by_median,
            figure.wanted.map_or_else(String::new, |wanted| format!(
                "≥ {:.0} % {}",
                100.0 * wanted,
                verdict(wanted)
            )),
        );
    }
    text
}

/// These results as JSON.
pub(super) fn records(figures: &[HaloFigure]) -> Vec<Json> {
    let record = |figure: &HaloFigure| {
        let (share, by_median) = figure.share();
        let mut fields: Vec<(&'static str, Json)> = vec![
            ("ranks", figure.row.ranks.into()),
            ("name", figure.name.into()),
            ("bytes", figure.row.size.into()),
            ("minimum_seconds", figure.row.minimum.into()),
            ("median_seconds", figure.row.median.into()),
            ("reference_minimum_seconds", figure.reference.minimum.into()),
            ("reference_median_seconds", figure.reference.median.into()),
            ("repetitions", figure.row.repetitions.into()),
            ("share", share.into()),
            ("share_by_median", by_median.into()),
        ];
        fields.extend(figure.wanted.map(|wanted| ("wanted_share", wanted.into())));
        Json::Object(fields)
    };
    figures.iter().map(record).collect()
}
