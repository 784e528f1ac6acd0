//! Plots the loss over the steps as SVG.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const MARGIN: f64 = 56.0;

/// The colours of the lines, in order.
const COLOURS: [&str; 3] = ["#1f77b4", "#d62728", "#2ca02c"];

/// Plots named lines of (step, value) points. The scale is logarithmic if all values are positive.
pub(super) fn svg(title: &str, lines: &[(&str, Vec<(f64, f64)>)]) -> String {
    let points = || lines.iter().flat_map(|(_, line)| line.iter().copied());
    let bound = |of: fn(&(f64, f64)) -> f64, pick: fn(f64, f64) -> f64| points().map(|p| of(&p)).reduce(pick);
    let logarithmic = points().all(|(_, value)| value > 0.0);
    let scale = |value: f64| if logarithmic { value.log10() } else { value };
    let right = bound(|point| point.0, f64::max).unwrap_or(1.0).max(1.0);
    let low = scale(bound(|point| point.1, f64::min).unwrap_or(if logarithmic { 1.0 } else { 0.0 }));
    let high = scale(bound(|point| point.1, f64::max).unwrap_or(1.0));
    let height = if high > low { high - low } else { 1.0 };
    let x = |step: f64| MARGIN + step / right * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - MARGIN - (scale(value) - low) / height * (HEIGHT - 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{title}</text>\n"
    );
    let (far, bottom) = (WIDTH - MARGIN, HEIGHT - MARGIN);
    let values = if logarithmic {
        logarithmic_ticks(10_f64.powf(low), 10_f64.powf(low + height))
    } else {
        linear_ticks(low, low + height)
    };
    for (value, label) in values {
        let at = y(value);
        let _ = writeln!(
            text,
            "<line x1=\"{MARGIN}\" x2=\"{far}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            MARGIN - 6.0,
            at + 4.0,
        );
    }
    for (step, label) in linear_ticks(0.0, right) {
        let (at, below) = (x(step), bottom + 18.0);
        let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>");
    }
    for (number, (name, line)) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let path: Vec<String> =
            line.iter().map(|(step, value)| format!("{:.1},{:.1}", x(*step), y(*value))).collect();
        let path = path.join(" ");
        let _ = writeln!(
            text,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{path}\"/>"
        );
        let top = 40.0 + 16.0 * number as f64;
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{top}\" fill=\"{colour}\">{name}</text>",
            WIDTH - MARGIN - 70.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">batches</text>\n</svg>",
        WIDTH / 2.0,
        HEIGHT - 12.0
    );
    text
}

/// The largest number of intervals between the ticks of a linear axis.
const MOST_INTERVALS: f64 = 6.0;

/// Ticks at multiples of 1, 2 or 5 times a power of ten, with their labels.
fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / MOST_INTERVALS;
    let power = rough.log10().floor();
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * 10_f64.powf(power));
    let step = steps.into_iter().find(|step| *step >= rough).unwrap_or(steps[3]);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let label = |value: f64| match value.abs() {
        // The scale is that of the axis: a large or tiny one has an exponent at every tick.
        _ if value == 0.0 => "0".into(),
        size if size < 1e6 && decimals <= 6 => format!("{value:.decimals$}"),
        size => {
            let digits = (size.log10().floor() - step.log10().floor()).max(0.0) as usize;
            format!("{value:.digits$e}")
        }
    };
    let ticks = ((low / step).ceil() as i64..=(high / step).floor() as i64).map(|tick| tick as f64 * step);
    ticks.map(|value| (value, label(value))).collect()
}

/// Ticks at 1, 2 and 5 times powers of ten, or at powers alone over many decades. Between two such values a logarithmic axis is
/// close to a linear one, and has its ticks.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let count = decades.end() - decades.start();
    let factors: &[f64] = if count <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let apart = 1 + (count - 1).max(0) as usize / 8;
    let values = decades.step_by(apart).flat_map(|power| {
        factors.iter().map(move |factor| (factor * 10_f64.powi(power), power.min(0).unsigned_abs() as usize))
    });
    let label = |value: f64, decimals: usize| match value {
        1e-3..1e6 => format!("{value:.decimals$}"),
        _ => format!("{value:.0e}"),
    };
    let inside = values.filter(|(value, _)| (low..=high).contains(value));
    let ticks: Vec<_> = inside.map(|(value, decimals)| (value, label(value, decimals))).collect();
    if ticks.len() < 2 { linear_ticks(low, high) } else { ticks }
}

/// Reduces a curve to at most this number of points, each the mean of an equal range.
pub(super) fn thinned(losses: &[(u64, f64)], most: usize) -> Vec<(f64, f64)> {
    let each = losses.len().div_ceil(most).max(1);
    losses
        .chunks(each)
        .map(|part| {
            let mean = part.iter().map(|(_, loss)| loss).sum::<f64>() / part.len() as f64;
            (part[part.len() - 1].0 as f64, mean)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_values() {
        let labels = |ticks: Vec<(f64, String)>| {
            ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        for ((low, high), expected) in [
            ((0.0, 937.0), "0 200 400 600 800"),
            ((0.212, 0.731), "0.3 0.4 0.5 0.6 0.7"),
            ((-3.0, 2.0), "-3 -2 -1 0 1 2"),
            ((0.0, 1.0), "0 0.2 0.4 0.6 0.8 1.0"),
            ((0.0, 3.1e9), "0 1e9 2e9 3e9"),
            ((1e-9, 3.3e-9), "1.0e-9 1.5e-9 2.0e-9 2.5e-9 3.0e-9"),
        ] {
            assert_eq!(labels(linear_ticks(low, high)), expected);
        }
        for ((low, high), expected) in [
            ((0.212, 0.731), "0.3 0.4 0.5 0.6 0.7"),
            ((0.043, 2.31), "0.05 0.1 0.2 0.5 1 2"),
            ((3.0, 900.0), "5 10 20 50 100 200 500"),
            ((2e-6, 30.0), "1e-5 1e-4 0.001 0.01 0.1 1 10"),
            ((2e-20, 1.0), "1e-17 1e-14 1e-11 1e-8 1e-5 0.01"),
        ] {
            assert_eq!(labels(logarithmic_ticks(low, high)), expected);
        }
    }

    #[test]
    fn curves_have_finite_points_whatever_the_losses() {
        for losses in [
            vec![],
            vec![(1, 0.0)],
            vec![(1, 2.0), (2, 2.0)],
            (1..2000).map(|s| (s, 1.0 / s as f64)).collect(),
        ] {
            let line = thinned(&losses, 300);
            assert!(line.len() <= 300);
            let text = svg("title", &[("loss", line)]);
            assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}
