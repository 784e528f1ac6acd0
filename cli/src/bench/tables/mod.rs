//! `unisono bench tables`: gets and adds by real processes, compared with the same work on private memory in the same run.

mod dense;
mod many;
mod report;
mod rows;

use std::ffi::OsString;

use clap::Args;
use unisono::World;
use unisono::tables::{Role, Tables};

use self::dense::DenseCases;
use self::many::ManyCases;
use self::rows::RowCases;
use super::TableBench;
use super::output::install_signals;
use super::ranks::{list, run_bench_ranks};
use super::size::Size;
use crate::stdout;

/// What to measure; each rank receives the same options.
#[derive(Args)]
pub(crate) struct Sizes {
    /// Sizes in bytes of the dense arrays for get and add; the units KB, MB, KiB and MiB are accepted.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "1MB,10MB,100MB")]
    sizes: Vec<Size>,
    /// Rows of the matrix, and keys of the key-value table.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = crate::run::positive)]
    rows: usize,
    /// Columns of the matrix: values in a row.
    #[arg(long, value_name = "N", default_value = "50", value_parser = crate::run::positive)]
    columns: usize,
    /// Number of random rows in each get and each add.
    #[arg(long, value_name = "N", default_value = "100000", value_parser = crate::run::positive)]
    listed: usize,
    /// Number of tables to compare with a single one.
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::run::positive)]
    tables: usize,
    /// Approximate measuring time per case, in seconds; large sizes take longer.
    #[arg(long, value_name = "S", default_value = "4")]
    seconds: f64,
}

impl Sizes {
    /// These options as command-line arguments.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["tables".into(), "--sizes".into()];
        arguments.push(list(self.sizes.iter().map(|size| size.0.to_string())));
        let numbers = [
            ("--rows", self.rows.to_string()),
            ("--columns", self.columns.to_string()),
            ("--listed", self.listed.to_string()),
            ("--tables", self.tables.to_string()),
            ("--seconds", self.seconds.to_string()),
        ];
        arguments.extend(numbers.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
        arguments
    }
}

pub(super) fn run(options: &TableBench, this_program: &[OsString]) -> Result<(), i32> {
    let mut signals = install_signals()?;
    let mut all = Vec::new();
    for &workers in &options.workers {
        let rows = run_bench_ranks(workers, options.sizes.arguments(), this_program, &mut signals)?;
        let figures = report::figures(&rows, &options.sizes);
        stdout::line(report::table(&figures, workers, &options.sizes));
        all.extend(report::records(&figures));
    }
    options.output.write(all)
}

/// The benchmark on one rank.
pub(super) fn measure_tables(sizes: &Sizes) -> unisono::Result<()> {
    let world = World::init()?;
    let tables = Tables::join(&world, Role::Both)?;
    let report = super::rank::report;
    for size in &sizes.sizes {
        let elements = size.0.div_ceil(size_of::<f32>());
        let mut cases = DenseCases::new(&tables, elements)?;
        report(&world, "dense", size.0, &DenseCases::NAMES, &mut cases, sizes.seconds)?;
    }
    let mut cases = RowCases::new(&tables, sizes)?;
    report(&world, "rows", sizes.listed, &RowCases::NAMES, &mut cases, sizes.seconds)?;
    drop(cases);
    let mut cases = ManyCases::new(&tables, sizes.tables)?;
    report(&world, "small", many::BYTES, &ManyCases::NAMES, &mut cases, sizes.seconds)
}
