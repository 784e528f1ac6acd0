//! Random cases: arrays, grids, partitions, windows and boundaries of every kind.

use unisono::halo::{Boundary, Edges, Grid, Layout, Window};

/// A small random generator; every rank draws the same cases from the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number between −1 and 1.
    pub fn value(&mut self) -> f64 {
        (self.next() & 0xffff_ffff) as f64 / f64::from(u32::MAX) * 2.0 - 1.0
    }
}

pub struct Case {
    pub input: Layout,
    pub outputs: Layout,
    pub windows: Vec<Window>,
    pub edges: Vec<Edges>,
}

/// Axes whose sizes multiply to `ranks`.
fn axes(random: &mut Random, ranks: usize, count: usize) -> Vec<(&'static str, i64)> {
    let names = ["a", "b", "c"];
    let mut left = ranks;
    let mut axes = Vec::new();
    for (index, name) in names[..count].iter().enumerate() {
        let divisors: Vec<usize> = (1..=left).filter(|&divisor| left.is_multiple_of(divisor)).collect();
        let size = if index + 1 == count { left } else { divisors[random.below(divisors.len())] };
        left /= size;
        axes.push((*name, size as i64));
    }
    axes
}

fn sizes(random: &mut Random, length: usize, parts: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (1..parts).map(|_| random.below(length + 1)).collect();
    cuts.sort_unstable();
    cuts.insert(0, 0);
    cuts.push(length);
    cuts.windows(2).map(|cut| cut[1] - cut[0]).collect()
}

/// The layout with some of its axes divided unevenly.
fn uneven(random: &mut Random, mut layout: Layout, percent: usize) -> Layout {
    let named: Vec<(String, usize)> =
        layout.grid().axes().map(|(name, size)| (name.to_string(), size)).collect();
    for dimension in 0..layout.shape().len() {
        let Some((axis, _)) = layout.split(dimension) else { continue };
        if random.chance(percent) {
            let (name, parts) = &named[axis];
            let sizes = sizes(random, layout.shape()[dimension], *parts);
            layout = layout.with_sizes(name, &sizes).unwrap();
        }
    }
    layout
}

fn boundary(random: &mut Random) -> Boundary {
    match random.below(5) {
        0 => Boundary::Zero,
        1 => Boundary::Constant(random.value()),
        2 => Boundary::Replicate,
        3 => Boundary::Reflect,
        _ => Boundary::Periodic,
    }
}

fn window(random: &mut Random) -> Window {
    let transposed = random.chance(25);
    let (stride, dilation) = (1 + random.below(4), 1 + random.below(3));
    let output_padding = if transposed { random.below(stride.max(dilation)) } else { 0 };
    Window {
        kernel: 1 + random.below(7),
        stride,
        dilation,
        padding: (random.below(5), random.below(5)),
        transposed,
        output_padding,
        ceil: !transposed && random.chance(20),
    }
}

/// The case with this number for `ranks` ranks, if its windows fit.
pub fn case(ranks: usize, number: u64) -> Option<Case> {
    let mut random = Random::new(number.wrapping_mul(1009).wrapping_add(ranks as u64));
    let spatial = 1 + random.below(3);
    let leading = random.below(3);
    let longest = [24, 12, 7][spatial - 1];
    let mut shape: Vec<usize> = (0..leading).map(|_| 1 + random.below(3)).collect();
    shape.extend((0..spatial).map(|_| 1 + random.below(longest)));
    let count = 1 + random.below(3);
    let axes = axes(&mut random, ranks, count);
    let grid = Grid::new(&axes, ranks).unwrap();
    // Every axis divides its own dimension, possibly a leading one, or none.
    let mut free: Vec<usize> = (0..shape.len()).collect();
    let mut split = Vec::new();
    for (name, _) in &axes {
        if !free.is_empty() && random.chance(90) {
            split.push((*name, free.swap_remove(random.below(free.len()))));
        }
    }
    let input = Layout::new(&grid, &shape, &split).unwrap();
    let input = uneven(&mut random, input, 30);
    let windows: Vec<Window> = (0..shape.len())
        .map(|dimension| if dimension < leading { Window::IDENTITY } else { window(&mut random) })
        .collect();
    let edges = windows
        .iter()
        .map(|_| Edges { before: boundary(&mut random), after: boundary(&mut random) })
        .collect();
    let outputs = input.outputs(&windows).ok()?;
    let outputs = uneven(&mut random, outputs, 20);
    (outputs.shape().iter().product::<usize>() < 4000).then_some(Case { input, outputs, windows, edges })
}
