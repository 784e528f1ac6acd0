//! `unisono check`: a table of how far many processes are from one.

use unisono::World;
use unisono_nn::{Arrangement, Comparison, Experiment};

use super::{failed, status};

pub(super) fn here(world: &World, experiment: &Experiment) -> i32 {
    let found = match unisono_nn::check(world.group(), experiment) {
        Ok(found) => found,
        Err(failure) if failure.own => return failed(&failure.error),
        Err(failure) => return status(&failure.error),
    };
    let good = found.iter().all(Comparison::passes);
    if world.rank() == 0 {
        let grid = Arrangement::new(experiment, world.size()).map(|found| found.grid.to_string());
        print!("{}", table(&found, &grid.unwrap_or_default()));
    }
    i32::from(!good)
}

fn table(found: &[Comparison], grid: &str) -> String {
    let width = found.iter().map(|row| row.layer.chars().count()).max().unwrap_or(0).max(5);
    let mut text = format!("{:<width$}  {:<20} {:>12} {:>12}\n", "layer", "numbers", "difference", "largest");
    for row in found {
        let word = if row.passes() { "" } else { "  DIFFERENT" };
        let line =
            format!("{:<width$}  {:<20} {:>12.1e} {:>12.1e}", row.layer, row.what, row.difference, row.scale);
        text += &format!("{line}{word}\n");
    }
    let relative = |row: &Comparison| if row.difference == 0.0 { 0.0 } else { row.difference / row.scale };
    let worst = found.iter().map(relative).fold(0.0_f64, f64::max);
    let wrong = found.iter().filter(|row| !row.passes()).count();
    let verdict = match wrong {
        0 => "equal".to_string(),
        wrong => format!("{wrong} differ by more than rounding"),
    };
    text + &format!(
        "{grid}: {} comparisons, largest relative difference {worst:.1e}: {verdict}\n",
        found.len()
    )
}
