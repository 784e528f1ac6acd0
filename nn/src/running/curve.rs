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
    for tick in 0..=4 {
        let share = f64::from(tick) / 4.0;
        let value = low + share * height;
        let shown = short(if logarithmic { 10_f64.powf(value) } else { value });
        let at = HEIGHT - MARGIN - share * (HEIGHT - 2.0 * MARGIN);
        let (step, far) = (share * right, WIDTH - MARGIN);
        let _ = writeln!(
            text,
            "<line x1=\"{MARGIN}\" x2=\"{far}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{shown}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{step:.0}</text>",
            MARGIN - 6.0,
            at + 4.0,
            x(step),
            HEIGHT - MARGIN + 18.0,
        );
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

/// A number with about three digits, to fit into the margin.
fn short(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{value:.1e}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1e-3.. => format!("{value:.3}"),
        0.0 => "0".into(),
        _ => format!("{value:.1e}"),
    }
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
