//! Data sets that need no files: random numbers, and images of circles and ellipses.

use unisono::Result;

use super::{DataSet, Inputs, Split, Targets};
use crate::memory;
use crate::random::RandomStream;
use crate::shape::Shape;

/// Numbers in [0, 1) with random classes: there is nothing to learn, but the speed of training can be measured.
pub(super) fn uniform(counts: [usize; 2], shape: Shape, classes: usize, seed: u64) -> Result<DataSet> {
    // The elements, the class and the index of each sample.
    let each = shape.size().saturating_mul(size_of::<f32>());
    let each = each.saturating_add(size_of::<u32>() + size_of::<usize>());
    let bytes = counts[0].saturating_add(counts[1]).saturating_mul(each);
    memory::check_fits("uniform_random", "samples", bytes, "ask for fewer or smaller ones")?;
    let [train, test] = ["train", "test"].map(|name| RandomStream::new(seed, name));
    let split = |count: usize, stream: RandomStream| {
        let number = |index: usize| stream.uniform(index as u64);
        let inputs = (0..count * shape.size()).map(|index| number(index) as f32).collect();
        let class = stream.branch(1);
        let class = |sample: usize| (class.uniform(sample as u64) * classes as f64) as u32;
        Split {
            count,
            inputs: Inputs::Singles(inputs),
            targets: Targets::Classes((0..count).map(class).collect()),
        }
    };
    Ok(DataSet { shape, outputs: classes, train: split(counts[0], train), test: split(counts[1], test) })
}

const SIDE: usize = 32;
const TOYS: usize = 128;

/// 128 training images and 128 test images: class 0 shows a circle, class 1 an ellipse. The images are the same in every
/// run.
pub(super) fn toy_images() -> DataSet {
    let [train, test] = ["toy train", "toy test"].map(|name| {
        let mut pictures = Vec::with_capacity(TOYS * 3 * SIDE * SIDE);
        let classes: Vec<u32> = (0..TOYS).map(|sample| (sample % 2) as u32).collect();
        for (sample, class) in classes.iter().enumerate() {
            let stream = RandomStream::new(0, name).branch(sample as u64);
            draw(&mut pictures, stream, *class == 1);
        }
        Split { count: TOYS, inputs: Inputs::Singles(pictures), targets: Targets::Classes(classes) }
    });
    DataSet { shape: Shape::new(3, SIDE, SIDE), outputs: 2, train, test }
}

/// A filled shape in a random colour on a random background.
fn draw(pictures: &mut Vec<f32>, stream: RandomStream, ellipse: bool) {
    let between = |index: u64, low: f64, high: f64| low + (high - low) * stream.uniform(index);
    let (row, column) = (between(0, 12.0, 20.0), between(1, 12.0, 20.0));
    let radius = between(2, 6.0, 10.0);
    let other = if ellipse { radius * between(3, 0.3, 0.6) } else { radius };
    let angle = between(4, 0.0, std::f64::consts::PI);
    for map in 0..3 {
        let (ground, figure) = (between(5 + map, 0.0, 0.4), between(8 + map, 0.6, 1.0));
        for place in 0..SIDE * SIDE {
            let (down, right) = ((place / SIDE) as f64 - row, (place % SIDE) as f64 - column);
            let along = down * angle.cos() + right * angle.sin();
            let across = right * angle.cos() - down * angle.sin();
            let inside = (along / radius).powi(2) + (across / other).powi(2) <= 1.0;
            pictures.push(if inside { figure } else { ground } as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_asked() {
        let data = uniform([10, 5], Shape::new(2, 3, 4), 7, 1).expect("they fit");
        assert_eq!((data.train.count, data.test.count, data.outputs), (10, 5, 7));
        assert!((0..10).all(|sample| data.train.class(sample).is_some_and(|class| class < 7)));
        assert_ne!(data.train.choose(&[0, 1, 2, 3, 4]).inputs, data.test.inputs);
        let toys = toy_images();
        assert_eq!((toys.train.count, toys.test.count), (128, 128));
        assert_eq!(toys.train, toy_images().train);
    }
}
