//! Results of the table benchmark, each compared with its reference and target.

use super::Sizes;
use crate::bench::output::cores;
use crate::bench::ranks::Row;
use crate::bench::size::{Size, time};
use crate::json::Json;

/// The target of a result.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    Nothing,
    /// At least this fraction of the reference's speed.
    Share(f64),
    /// A median of at most this many seconds.
    Seconds(f64),
}

/// The unit of the throughput of all workers together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    Bytes,
    Rows,
    Calls,
}

/// One line of the table.
pub(super) struct TableFigure {
    name: String,
    row: Row,
    reference: Option<Row>,
    unit: Unit,
    target: Target,
}

impl TableFigure {
    /// Bytes, rows or calls per second, of all workers together.
    fn rate(&self, row: &Row) -> f64 {
        let amount = if self.unit == Unit::Calls { 1 } else { row.size };
        (row.ranks * amount) as f64 / row.minimum
    }

    /// The speed as a fraction of the reference's: by minimum and by median.
    fn share(&self) -> Option<(f64, f64)> {
        let reference = self.reference.as_ref()?;
        Some((reference.minimum / self.row.minimum, reference.median / self.row.median))
    }

    fn reached(&self) -> Option<bool> {
        match self.target {
            Target::Nothing => None,
            Target::Share(wanted) => self.share().map(|(share, _)| share >= wanted),
            Target::Seconds(wanted) => Some(self.row.median <= wanted),
        }
    }
}

/// The results of one run, in order.
pub(super) fn figures(rows: &[Row], sizes: &Sizes) -> Vec<TableFigure> {
    let find = |verb: &str, what: &str, size: usize| {
        rows.iter().find(|row| row.verb == verb && row.what == what && row.size == size).cloned()
    };
    let mut figures = Vec::new();
    let mut push = |name: String, row: Option<Row>, reference: Option<Row>, unit: Unit, target: Target| {
        figures.extend(row.map(|row| TableFigure { name, row, reference, unit, target }));
    };
    for &Size(size) in &sizes.sizes {
        let dense = |what: &str| find("dense", what, size);
        let target = if size >= 100_000_000 { Target::Share(0.7) } else { Target::Nothing };
        push(format!("get {} / copy", Size(size)), dense("get"), dense("copy"), Unit::Bytes, target);
        push(format!("add {} / y += x", Size(size)), dense("add"), dense("sum"), Unit::Bytes, target);
    }
    let of_rows = |what: &str| find("rows", what, sizes.listed);
    let (gather, scatter, rows) = (of_rows("gather"), of_rows("scatter_add"), Target::Share(0.6));
    push("row get / gather".into(), of_rows("get"), gather.clone(), Unit::Rows, rows);
    push("row add / scatter-add".into(), of_rows("add"), scatter.clone(), Unit::Rows, rows);
    push("key get / gather".into(), of_rows("key_get"), gather, Unit::Rows, Target::Nothing);
    push("key add / scatter-add".into(), of_rows("key_add"), scatter, Unit::Rows, Target::Nothing);
    let small = |what: &str| find("small", what, super::many::BYTES);
    let many = |what: &str| format!("{what} 100 floats, {} tables / 1", sizes.tables);
    let (get, add) = (small("get"), small("add"));
    let target = match get.as_ref().is_some_and(|row| row.ranks == 1) {
        true => Target::Seconds(2e-6),
        false => Target::Nothing,
    };
    push("get 100 floats".into(), get.clone(), None, Unit::Calls, target);
    push("add 100 floats".into(), add.clone(), None, Unit::Calls, Target::Nothing);
    push(many("get"), small("get_many"), get, Unit::Calls, Target::Nothing);
    push(many("add"), small("add_many"), add, Unit::Calls, Target::Nothing);
    figures
}

pub(super) fn table(figures: &[TableFigure], workers: usize, sizes: &Sizes) -> String {
    let mut text = format!(
        "tables of f32, {workers} workers on {} cores; all workers at once, for the reference too;\n\
         rows: {} random ones of {} with {} columns; speed = what all workers got or added / minimum\n",
        cores(),
        sizes.listed,
        sizes.rows,
        sizes.columns,
    );
    text += &format!(
        "{:<34}{:>10}{:>10}{:>16}{:>16}{:>9}{:>11}  {}\n",
        "what / reference", "minimum", "median", "speed", "reference", "reached", "by median", "wanted"
    );
    for figure in figures {
        let speed = |row: &Row| match figure.unit {
            Unit::Bytes => format!("{:.2} GB/s", figure.rate(row) / 1e9),
            Unit::Rows => format!("{:.2} M rows/s", figure.rate(row) / 1e6),
            Unit::Calls => format!("{:.2} M calls/s", figure.rate(row) / 1e6),
        };
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let share = figure.share();
        text += &format!(
            "{:<34}{:>10}{:>10}{:>16}{:>16}{:>9}{:>11}  {}\n",
            figure.name,
            time(figure.row.minimum),
            time(figure.row.median),
            speed(&figure.row),
            figure.reference.as_ref().map_or_else(String::new, speed),
            share.map_or_else(String::new, |(share, _)| percent(share)),
            share.map_or_else(String::new, |(_, share)| percent(share)),
            wanted(figure),
        );
    }
    text
}

/// The target and whether it was reached: "≥ 70 % yes".
fn wanted(figure: &TableFigure) -> String {
    let target = match figure.target {
        Target::Nothing => return String::new(),
        Target::Share(share) => format!("≥ {:.0} %", 100.0 * share),
        Target::Seconds(seconds) => format!("≤ {}", time(seconds)),
    };
    format!("{target} {}", if figure.reached() == Some(true) { "yes" } else { "NO" })
}

pub(super) fn records(figures: &[TableFigure]) -> Vec<Json> {
    let record = |figure: &TableFigure| {
        let row = &figure.row;
        let mut fields: Vec<(&'static str, Json)> = vec![
            ("workers", row.ranks.into()),
            ("name", figure.name.as_str().into()),
            ("size", row.size.into()),
            ("minimum_seconds", row.minimum.into()),
            ("median_seconds", row.median.into()),
            ("repetitions", row.repetitions.into()),
            ("per_second", figure.rate(row).into()),
            (
                "unit",
                match figure.unit {
                    Unit::Bytes => "bytes",
                    Unit::Rows => "rows",
                    Unit::Calls => "calls",
                }
                .into(),
            ),
        ];
        if let (Some(reference), Some((share, by_median))) = (&figure.reference, figure.share()) {
            fields.push(("reference_minimum_seconds", reference.minimum.into()));
            fields.push(("reference_median_seconds", reference.median.into()));
            fields.push(("share", share.into()));
            fields.push(("share_by_median", by_median.into()));
        }
        match figure.target {
            Target::Nothing => {}
            Target::Share(share) => fields.push(("wanted_share", share.into())),
            Target::Seconds(seconds) => fields.push(("wanted_median_seconds", seconds.into())),
        }
        if let Some(reached) = figure.reached() {
            fields.push(("reached", if reached { "yes" } else { "no" }.into()));
        }
        Json::Object(fields)
    };
    figures.iter().map(record).collect()
}
