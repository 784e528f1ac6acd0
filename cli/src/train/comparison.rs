//! `unisono check` and `unisono compare`: tables of numerical differences.

use unisono::World;
use unisono_nn::{Arrangement, Comparison, Experiment};

use super::{failed, status};

pub(super) fn check_joined(world: &World, experiment: &Experiment) -> i32 {
    let found = match unisono_nn::check(world.group(), experiment) {
        Ok(found) => found,
        Err(failure) if failure.own => return failed(&failure.error),
        Err(failure) => return status(&failure.error),
    };
    match world.rank() {
        0 => {
            let grid = Arrangement::new(experiment, world.size()).map(|found| found.grid.to_string());
            show(&found, &grid.unwrap_or_default())
        }
        _ => i32::from(!found.iter().all(Comparison::passes)),
    }
}

/// Prints a table; returns 1 if a difference exceeds its tolerance.
pub(super) fn show(found: &[Comparison], title: &str) -> i32 {
    crate::stdout::bytes(table(found, title).as_bytes());
    i32::from(!found.iter().all(Comparison::passes))
}

fn table(found: &[Comparison], title: &str) -> String {
    let longest = |word: fn(&Comparison) -> &str| found.iter().map(|row| word(row).chars().count()).max();
    let width = longest(|row| &row.layer).unwrap_or(0).max(5);
    let what = longest(|row| &row.what).unwrap_or(0).max(20);
    let mut text =
        format!("{:<width$}  {:<what$} {:>12} {:>12}\n", "layer", "numbers", "difference", "largest");
    for row in found {
        let word = if row.passes() { "" } else { "  DIFFERENT" };
        let (difference, scale) = (row.difference, row.scale);
        let line = format!("{:<width$}  {:<what$} {difference:>12.1e} {scale:>12.1e}", row.layer, row.what);
        text += &format!("{line}{word}\n");
    }
    let worst = found.iter().map(Comparison::relative).fold(0.0_f64, f64::max);
    let wrong = found.iter().filter(|row| !row.passes()).count();
    let verdict = match wrong {
        0 if worst == 0.0 => "equal bit for bit".to_string(),
        0 => "equal".to_string(),
        wrong if began_equal(found) => {
            format!("equal in the first batches, then diverged: {wrong} differ by more than the tolerance")
        }
        wrong => format!("{wrong} differ by more than the tolerance"),
    };
    text + &format!(
        "{title}: {} comparisons, largest relative difference {worst:.1e}: {verdict}\n",
        found.len()
    )
}

/// Whether two runs agree in the first batches, whose costs come first.
fn began_equal(found: &[Comparison]) -> bool {
    found.first().is_some_and(|row| row.what.starts_with("batches 1 ") && row.passes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_and_told_by_the_exit_status() {
        let row = |difference: f64| Comparison {
            layer: "conv1".into(),
            what: "outputs".into(),
            difference,
            scale: 1.0,
            reference: 2.0,
            allowed: 1e-5,
        };
        assert_eq!(show(&[row(1e-6)], "h=2,w=2"), 0);
        assert!(table(&[row(1e-6)], "h=2,w=2").ends_with("5.0e-7: equal\n"));
        assert!(table(&[row(0.0)], "h=2,w=2").ends_with("0.0e0: equal bit for bit\n"));
        assert_eq!(show(&[row(1e-6), row(1e-3)], "h=2,w=2"), 1);
        let text = table(&[row(1e-6), row(1e-3)], "h=2,w=2");
        assert_eq!(text.lines().filter(|line| line.ends_with("DIFFERENT")).count(), 1, "{text}");
        assert!(
            text.ends_with("largest relative difference 5.0e-4: 1 differ by more than the tolerance\n"),
            "{text}"
        );
        let mut drifted = [row(1e-6), row(1e-3)];
        drifted[0].what = "batches 1 to 10".into();
        assert!(table(&drifted, "runs").contains("equal in the first batches, then diverged: 1 differ"));
    }
}
