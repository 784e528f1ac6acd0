//! The halo widths of neon's square grids, as given in its specification: own width, west, east, outputs.

use unisono::halo::{Edges, Grid, Layout, Plan, Window};

/// For each part: its own width, the elements it needs from the west and from the east, and its outputs.
fn widths(inputs: usize, window: Window, parts: usize) -> Vec<(i64, i64, i64, i64)> {
    let grid = Grid::new(&[("w", parts as i64)], parts).unwrap();
    let layout = Layout::new(&grid, &[inputs], &[("w", 0)]).unwrap();
    let of_part = |part: usize| {
        let plan = Plan::window(&layout, &[window], &[Edges::default()], None, part).unwrap();
        let (own, needed) = (plan.own().range(0), plan.needed().range(0));
        let outputs = plan.outputs().region(part).elements() as i64;
        (own.end - own.start, own.start - needed.start, needed.end - own.end, outputs)
    };
    (0..parts).map(of_part).collect()
}

fn kernel(kernel: usize, stride: usize) -> Window {
    Window { kernel, stride, ..Window::IDENTITY }
}

#[test]
fn convolution_and_pooling_of_mnist() {
    assert_eq!(widths(28, kernel(5, 1), 2), [(14, 0, 2, 12), (14, 2, 0, 12)]);
    assert_eq!(widths(28, kernel(5, 1), 4), [(7, 0, 3, 6), (7, 1, 2, 6), (7, 2, 1, 6), (7, 3, 0, 6)]);
    assert_eq!(widths(24, kernel(2, 2), 2), [(12, 0, 0, 6); 2]);
    assert_eq!(widths(24, kernel(2, 2), 4), [(6, 0, 0, 3); 4]);
    assert_eq!(widths(12, kernel(5, 1), 2), [(6, 0, 2, 4), (6, 2, 0, 4)]);
    assert_eq!(widths(8, kernel(2, 2), 2), [(4, 0, 0, 2); 2]);
}

#[test]
fn local_filters_and_pooling_of_the_sparse_autoencoder() {
    assert_eq!(widths(28, kernel(4, 1), 2), [(14, 0, 2, 13), (14, 1, 0, 12)]);
    assert_eq!(widths(28, kernel(4, 1), 4), [(7, 0, 3, 7), (7, 0, 2, 6), (7, 1, 1, 6), (7, 2, 0, 6)]);
    assert_eq!(widths(25, kernel(3, 1), 2), [(13, 0, 1, 12), (12, 1, 0, 11)]);
    assert_eq!(widths(25, kernel(3, 1), 4), [(7, 0, 1, 6), (6, 1, 1, 6), (6, 1, 1, 6), (6, 1, 0, 5)]);
    assert_eq!(widths(23, kernel(3, 1), 4), [(6, 0, 2, 6), (6, 0, 1, 5), (6, 1, 0, 5), (5, 2, 0, 5)]);
    assert_eq!(widths(32, kernel(4, 1), 2), [(16, 0, 2, 15), (16, 1, 0, 14)]);
    assert_eq!(widths(32, kernel(4, 1), 4), [(8, 0, 3, 8), (8, 0, 2, 7), (8, 1, 1, 7), (8, 2, 0, 7)]);
}

/// Local contrast normalisation preserves the size: padding is at the global edges only.
#[test]
fn contrast_normalisation_pads_the_global_edges() {
    let window = Window { padding: (1, 1), ..kernel(3, 1) };
    assert_eq!(widths(23, window, 2), [(12, 1, 1, 12), (11, 1, 1, 11)]);
    let grid = Grid::parse("w=2", 2).unwrap();
    let layout = Layout::new(&grid, &[23], &[("w", 0)]).unwrap();
    for (part, neighbour) in [(0, 1), (1, 0)] {
        let plan = Plan::window(&layout, &[window], &[Edges::default()], None, part).unwrap();
        assert_eq!(
            plan.sources().collect::<Vec<_>>(),
            [(neighbour, 1)],
            "one from the neighbour, one is padding"
        );
    }
}

/// With stride 2 and a larger kernel, the old rule let the east part begin at the wrong pixel.
#[test]
fn strides_above_one_begin_where_the_outputs_do() {
    assert_eq!(widths(8, kernel(6, 2), 2), [(4, 0, 2, 1), (4, 2, 0, 1)]);
    // It also rejected parts that the stride does not divide.
    assert_eq!(widths(30, kernel(2, 2), 2), [(15, 0, 1, 8), (15, -1, 0, 7)]);
}

#[test]
fn the_general_rule_agrees_with_the_formula_of_the_specification() {
    for inputs in 4..=64usize {
        for size in 1..=7 {
            for stride in 1..=4 {
                let window = kernel(size, stride);
                let Ok(outputs) = window.outputs(inputs) else { continue };
                for parts in 1..=4 {
                    let share = |total: usize, part: usize| {
                        (total / parts + usize::from(total % parts > part)) as i64
                    };
                    let (mut left, mut first) = (0, 0);
                    for (part, found) in widths(inputs, window, parts).into_iter().enumerate() {
                        let (width, count) = (share(inputs, part), share(outputs, part));
                        let stride = stride as i64;
                        if count > 0 {
                            let west = left - stride * first;
                            let east = stride * (first + count - 1) + size as i64 - (left + width);
                            assert_eq!(
                                found,
                                (width, west, east, count),
                                "{inputs} {window:?} {part} of {parts}"
                            );
                        }
                        (left, first) = (left + width, first + count);
                    }
                }
            }
        }
    }
}
