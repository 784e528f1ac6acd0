//! `unisono bench halo`: halo exchanges between real processes, compared with copies of as many bytes in the same run.

mod cases;
mod report;
mod torch;

use std::ffi::OsString;

use clap::Args;
use unisono::halo::{Edges, Grid, Layout, Plan, Window};
use unisono::{Error, Result, World};

use self::cases::{ExchangeCases, OverlapCases};
use super::HaloBench;
use super::ranks::{list, report_error, run_bench_ranks};
use crate::launcher::Signals;
use crate::stdout;

/// What to measure; each rank receives the same options.
#[derive(Args, Clone)]
pub(crate) struct HaloArray {
    /// Global shape of the f32 array; its last two dimensions are partitioned.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "8,64,512,512", value_parser = crate::run::positive)]
    shape: Vec<usize>,
    /// Number of ranks along the second to last and the last dimension.
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "2,2", value_parser = crate::run::positive)]
    grid: Vec<usize>,
    /// Width of the halo.
    #[arg(long, value_name = "N", default_value = "3", value_parser = crate::run::positive)]
    halo: usize,
    /// Approximate measuring time, in seconds; large arrays take longer.
    #[arg(long, value_name = "S", default_value = "10")]
    seconds: f64,
}

impl HaloArray {
    fn arguments(&self) -> Vec<OsString> {
        let numbers = |numbers: &[usize]| list(numbers.iter().map(usize::to_string));
        vec![
            "halo".into(),
            "--shape".into(),
            numbers(&self.shape),
            "--grid".into(),
            numbers(&self.grid),
            "--halo".into(),
            self.halo.to_string().into(),
            "--seconds".into(),
            self.seconds.to_string().into(),
        ]
    }

    fn ranks(&self) -> usize {
        self.grid.iter().product()
    }

    /// What a rank sends, receives and copies.
    fn plan(&self, rank: usize) -> Result<Plan> {
        let (&[rows, columns], Some(first)) = (&self.grid[..], self.shape.len().checked_sub(2)) else {
            let received = format!("--grid {:?} --shape {:?}", self.grid, self.shape);
            let advice = "for example --grid 2,2 --shape 8,64,512,512";
            return Err(Error::usage(
                "bench halo",
                "two numbers, and two dimensions or more",
                received,
                advice,
            ));
        };
        let grid = Grid::new(&[("h", rows as i64), ("w", columns as i64)], self.ranks())?;
        let layout = Layout::new(&grid, &self.shape, &[("h", first), ("w", first + 1)])?;
        let window =
            Window { kernel: 2 * self.halo + 1, padding: (self.halo, self.halo), ..Window::IDENTITY };
        let mut windows = vec![Window::IDENTITY; self.shape.len()];
        windows[first..].fill(window);
        Plan::window(&layout, &windows, &vec![Edges::default(); self.shape.len()], None, rank)
    }
}

pub(super) fn run(options: &HaloBench, this_program: &[OsString]) -> i32 {
    let plan = match options.array.plan(0) {
        Ok(plan) => plan,
        Err(error) => return report_error(2, &error.to_string()),
    };
    let mut signals = match Signals::install() {
        Ok(signals) => signals,
        Err(error) => return report_error(1, &format!("cannot listen to signals: {error}")),
    };
    let rows =
        match run_bench_ranks(options.array.ranks(), options.array.arguments(), this_program, &mut signals) {
            Ok(rows) => rows,
            Err(status) => return status,
        };
    let figures = report::figures(&rows);
    stdout::line(report::table(&figures, &plan, &options.array));
    let with_torch = match torch::measure(options, this_program, &mut signals) {
        Ok(measured) => measured,
        Err(status) => return status,
    };
    if let Some(measured) = &with_torch {
        stdout::line(torch::table(measured));
    }
    let json = report::json(&figures, with_torch.as_ref().map(torch::json).unwrap_or_default());
    match options.json.as_ref().map(|file| std::fs::write(file, format!("{json}\n"))) {
        Some(Err(error)) => report_error(1, &format!("--json {:?}: {error}", options.json)),
        _ => 0,
    }
}

/// The benchmark on one rank.
pub(super) fn measure_halos(array: &HaloArray) -> Result<()> {
    let world = World::init()?;
    let (bytes, halo) = {
        let plan = array.plan(world.rank())?;
        let received: usize = plan.sources().map(|(_, elements)| elements).sum();
        (plan.needed().elements() * size_of::<f32>(), received * size_of::<f32>())
    };
    let mut cases = ExchangeCases::new(&world, array.plan(world.rank())?)?;
    super::rank::report(&world, "exchange", bytes, &ExchangeCases::NAMES, &mut cases, array.seconds)?;
    let mut cases = cases.halos_alone();
    super::rank::report(&world, "halo", halo, &cases::HaloCases::NAMES, &mut cases, array.seconds)?;
    let mut cases = OverlapCases::new(cases);
    super::rank::report(&world, "overlap", halo, &OverlapCases::NAMES, &mut cases, array.seconds)
}
