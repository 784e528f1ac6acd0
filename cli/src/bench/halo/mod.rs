//! `unisono bench halo`: halo exchanges between real processes, compared with copies of as many bytes in the same run.

mod cases;
mod report;
mod torch;

use std::ffi::OsString;

use clap::Args;
use unisono::halo::{Edges, Grid, Layout, Plan, Window};
use unisono::{Error, World};

use self::cases::{ExchangeCases, OverlapCases};
use super::HaloBench;
use super::output::{install_signals, report_error};
use super::ranks::{list, run_bench_ranks};
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
    fn plan(&self, rank: usize) -> unisono::Result<Plan> {
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

pub(super) fn run(options: &HaloBench, this_program: &[OsString]) -> Result<(), i32> {
    let array = &options.array;
    let plan = array.plan(0).map_err(|error| report_error(2, &error.to_string()))?;
    let mut signals = install_signals()?;
    let rows = run_bench_ranks(array.ranks(), array.arguments(), this_program, &mut signals)?;
    let figures = report::figures(&rows);
    stdout::line(report::table(&figures, &plan, array));
    let mut results = report::records(&figures);
    if let Some(measured) = torch::measure(options, this_program, &mut signals)? {
        stdout::line(torch::table(&measured));
        results.extend(torch::records(&measured));
    }
    options.output.write(results)
}

/// The benchmark on one rank.
pub(super) fn measure_halos(array: &HaloArray) -> unisono::Result<()> {
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
