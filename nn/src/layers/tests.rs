//! Every layer against finite differences, on odd shapes and on several threads.

use super::*;
use crate::initial::Initial;
use crate::random::RandomStream;
use crate::rules::Rule;
use crate::weight::WeightSharding;

fn weight(name: &'static str, shape: &[usize], seed: u64) -> Weight<f64> {
    let rule = Rule::sgd(0.1);
    let size = shape.iter().product();
    let values = Initial::Uniform { low: -1.0, high: 1.0 }.draw(RandomStream::new(seed, name), 1, size);
    Weight::new(name, shape.to_vec(), values, rule, WeightSharding::Replicated)
}

fn values(seed: u64, count: usize) -> Vec<f64> {
    Initial::Uniform { low: -1.0, high: 1.0 }.draw(RandomStream::new(seed, "values"), 1, count)
}

fn window(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> ConvWindow {
    ConvWindow { kernel, stride, padding }
}

/// The cost Σ c·y for fixed c.
fn cost(layer: &mut dyn Layer<f64>, pass: &Pass<'_, f64>, inputs: &[f64], factors: &[f64]) -> f64 {
    let mut outputs = vec![0.0; factors.len()];
    layer.fprop(pass, inputs, &mut outputs).expect("it computes");
    outputs.iter().zip(factors).map(|(output, factor)| output * factor).sum()
}

/// Compares gradients of inputs and weights with (cost(x + ε) − cost(x − ε)) / 2ε.
fn check(mut layer: impl Layer<f64>) {
    let layer: &mut dyn Layer<f64> = &mut layer;
    let batch = 3;
    for threads in [1, 2] {
        let pass = Pass { threads, ..Pass::alone(batch, true, 7) };
        let mut inputs = values(11, batch * layer.input().size());
        let factors = values(12, batch * layer.output().size());
        let mut outputs = vec![f64::NAN; factors.len()];
        layer.fprop(&pass, &inputs, &mut outputs).expect("it computes");
        let mut input_error = vec![f64::NAN; inputs.len()];
        layer.bprop(&pass, &inputs, &outputs, &factors, Some(&mut input_error)).expect("it computes");
        let gradients: Vec<Vec<f64>> = layer.weights().iter().map(|weight| weight.gradient.clone()).collect();
        let epsilon = 1e-5;
        let close = |what: &str, found: f64, expected: f64| {
            let error = (found - expected).abs() / (1.0 + expected.abs());
            assert!(error < 1e-7, "{what}: {found} is not {expected}");
        };
        for index in 0..inputs.len() {
            let value = inputs[index];
            inputs[index] = value + epsilon;
            let above = cost(layer, &pass, &inputs, &factors);
            inputs[index] = value - epsilon;
            let below = cost(layer, &pass, &inputs, &factors);
            inputs[index] = value;
            close("input", input_error[index], (above - below) / (2.0 * epsilon));
        }
        for (number, gradient) in gradients.iter().enumerate() {
            for (index, gradient) in gradient.iter().enumerate() {
                let mut nudge = |by: f64| layer.weights()[number].values[index] += by;
                nudge(epsilon);
                let above = cost(layer, &pass, &inputs, &factors);
                layer.weights()[number].values[index] -= 2.0 * epsilon;
                let below = cost(layer, &pass, &inputs, &factors);
                layer.weights()[number].values[index] += epsilon;
                close(layer.weights()[number].name, *gradient, (above - below) / (2.0 * epsilon));
            }
        }
    }
}

#[test]
fn fully_connected_layers_have_the_right_gradients() {
    let input = Shape::new(2, 3, 2);
    check(FullyConnected::new("full", input, weight("weights", &[5, 12], 1), None));
    let bias = weight("bias", &[5], 2);
    check(FullyConnected::new("full", input, weight("weights", &[5, 12], 1), Some(bias)));
}

#[test]
fn convolutions_have_the_right_gradients() {
    for window in [
        window([3, 2], [1, 1], [0, 0]),
        window([3, 3], [2, 1], [1, 2]),
        window([3, 3], [1, 1], [1, 1]),
        window([2, 4], [1, 1], [0, 3]),
        window([2, 3], [3, 2], [0, 1]),
        window([1, 1], [1, 1], [0, 0]),
    ] {
        let shape = [3, 2, window.kernel[0], window.kernel[1]];
        for bias in [None, Some(weight("bias", &[3], 2))] {
            let weights = weight("weights", &shape, 1);
            check(Convolution::new("convolution", Shape::new(2, 5, 6), window, weights, bias));
        }
    }
    // With this number of maps, the columns are stored in strips.
    for window in [window([3, 2], [1, 1], [1, 1]), window([2, 2], [1, 3], [0, 0])] {
        let weights = weight("weights", &[3, 32, window.kernel[0], window.kernel[1]], 1);
        let bias = Some(weight("bias", &[3], 2));
        check(Convolution::new("convolution", Shape::new(32, 3, 4), window, weights, bias));
    }
}

#[test]
fn local_filters_have_the_right_gradients() {
    for window in [window([3, 2], [1, 1], [0, 0]), window([2, 3], [2, 1], [1, 0])] {
        let input = Shape::new(2, 4, 5);
        let [rows, columns] = window.outputs(input).expect("it fits");
        let weights = weight("weights", &[3, rows, columns, 2, window.kernel[0], window.kernel[1]], 1);
        check(LocalFilter::new("local", input, window, weights, false));
    }
}

#[test]
fn local_filters_keep_unit_length() {
    let weights = weight("weights", &[2, 3, 3, 1, 2, 2], 1);
    let window = window([2, 2], [1, 1], [0, 0]);
    let mut layer = LocalFilter::new("local", Shape::new(1, 4, 4), window, weights, true);
    layer.weights()[0].gradient.fill(0.3);
    layer.update(0);
    for filter in layer.weights()[0].values.chunks(4) {
        assert!((filter.iter().map(|weight| weight * weight).sum::<f64>() - 1.0).abs() < 1e-12);
    }
}

#[test]
fn pooling_has_the_right_gradients() {
    for kind in [Pool::Max, Pool::Average, Pool::L2] {
        for window in
            [window([2, 2], [2, 2], [0, 0]), window([3, 2], [1, 1], [0, 0]), window([3, 3], [2, 3], [1, 1])]
        {
            check(Pooling::new("pool", kind, Shape::new(2, 5, 7), window));
        }
    }
}

#[test]
fn max_pooling_of_four_is_what_any_window_does() {
    let (two, shape) = (window([2, 2], [2, 2], [0, 0]), Shape::new(2, 7, 9));
    let inputs: Vec<f32> = (0..shape.size()).map(|index| (index * 7 % 5) as f32).collect();
    let mut layer = Pooling::new("pool", Pool::Max, shape, two);
    let mut outputs = vec![0.0; 2 * 3 * 4];
    layer.fprop(&Pass::alone(1, true, 0), &inputs, &mut outputs).expect("it computes");
    for (index, output) in outputs.iter().enumerate() {
        let (map, row, column) = (index / 12, index % 12 / 4, index % 4);
        let seen = |down: usize, right: usize| inputs[map * 63 + (2 * row + down) * 9 + 2 * column + right];
        let expected = seen(0, 0).max(seen(0, 1)).max(seen(1, 0)).max(seen(1, 1));
        assert_eq!(*output, expected);
    }
    // Of equal maxima, the first receives the gradient.
    let flat = vec![1.0_f32; shape.size()];
    layer.fprop(&Pass::alone(1, true, 0), &flat, &mut outputs).expect("it computes");
    let mut error = vec![0.0; shape.size()];
    layer
        .bprop(&Pass::alone(1, true, 0), &flat, &outputs.clone(), &[1.0; 24], Some(&mut error))
        .expect("it computes");
    assert_eq!((error[0], error[1], error[9]), (1.0, 0.0, 0.0));
}

#[test]
fn normalisations_have_the_right_gradients() {
    check(LocalContrast::new("contrast", Shape::new(2, 4, 5), [3, 3]));
    check(LocalContrast::new("contrast", Shape::new(1, 3, 2), [5, 1]));
    check(CrossMapResponse::new("response", Shape::new(5, 2, 3), 3, 0.5, 0.75));
    check(CrossMapResponse::new("response", Shape::new(3, 2, 1), 4, 1.0, 0.5));
    let norm = |shape: Shape| {
        let weights = (weight("scale", &[shape.maps], 1), weight("shift", &[shape.maps], 2));
        BatchNorm::new("norm", shape, weights, 0.9, 1e-3)
    };
    check(norm(Shape::new(3, 2, 2)));
    check(norm(Shape::flat(4)));
}

#[test]
fn dropout_and_activations_have_the_right_gradients() {
    check(Dropout::new("drop", Shape::new(2, 2, 3), 0.6, 1));
    for function in [
        Activation::Identity,
        Activation::Logistic,
        Activation::Tanh,
        Activation::Rectified,
        Activation::Leaky(0.1),
        Activation::Softplus,
        Activation::Softmax,
    ] {
        check(ActivationLayer::new("activation", Shape::new(2, 3, 1), function));
    }
}

#[test]
fn softplus_keeps_numbers_far_from_zero() {
    fn both<T: Number>(inputs: [f64; 5]) -> (Vec<T>, Vec<T>) {
        let mut layer = ActivationLayer::new("softplus", Shape::flat(5), Activation::Softplus);
        let (pass, inputs) = (Pass::alone(1, true, 0), inputs.map(T::of));
        let (mut outputs, mut slopes) = (vec![T::ZERO; 5], vec![T::ZERO; 5]);
        layer.fprop(&pass, &inputs, &mut outputs).expect("it computes");
        layer.bprop(&pass, &inputs, &outputs, &[T::ONE; 5], Some(&mut slopes)).expect("it computes");
        (outputs, slopes)
    }
    // eˣ is infinite at the last of these, and 1 + eˣ rounds to 1 at the second.
    let (outputs, slopes) = both::<f64>([-1e4, -40.0, 0.0, 40.0, 1e4]);
    assert_eq!(outputs, [0.0, (-40_f64).exp(), 2_f64.ln(), 40.0, 1e4]);
    assert_eq!(slopes, [0.0, (-40_f64).exp(), 0.5, 1.0, 1.0]);
    let (outputs, slopes) = both::<f32>([-1e3, -20.0, 0.0, 20.0, 1e3]);
    assert_eq!(outputs, [0.0, (-20_f32).exp(), 2_f32.ln(), 20.0, 1e3]);
    assert_eq!(slopes, [0.0, (-20_f32).exp(), 0.5, 1.0, 1.0]);
}

#[test]
fn prediction_of_batch_norm_uses_running_averages() {
    let weights = (weight("scale", &[1], 1), weight("shift", &[1], 2));
    let (scale, shift) = (weights.0.values[0], weights.1.values[0]);
    let mut layer = BatchNorm::new("norm", Shape::flat(1), weights, 0.5, 0.0);
    let mut outputs = vec![0.0; 2];
    for step in 0..60 {
        layer.fprop(&Pass::alone(2, true, step), &[1.0, 5.0], &mut outputs).expect("it computes");
    }
    layer.fprop(&Pass::alone(2, false, 0), &[3.0, 7.0], &mut outputs).expect("it computes");
    assert!((outputs[0] - shift).abs() < 1e-9 && (outputs[1] - (2.0 * scale + shift)).abs() < 1e-9);
}

#[test]
fn convolutions_in_single_precision_equal_those_in_double() {
    let mut seen = 0;
    for (shape, maps, kernel, padding) in [
        (Shape::new(3, 9, 16), 5, [5, 5], [2, 2]),
        (Shape::new(1, 28, 28), 6, [5, 5], [0, 0]),
        (Shape::new(4, 7, 13), 3, [3, 2], [1, 0]),
        (Shape::new(2, 5, 8), 9, [1, 1], [0, 0]),
        (Shape::new(2, 6, 9), 4, [2, 4], [0, 3]),
        (Shape::new(2, 4, 3), 4, [2, 2], [0, 0]),
    ] {
        let window = window(kernel, [1, 1], padding);
        let doubles = weight("weights", &[maps, shape.maps, kernel[0], kernel[1]], 1);
        let bias = weight("bias", &[maps], 2);
        let single = |weight: &Weight<f64>| {
            let values = weight.values.iter().map(|value| *value as f32).collect();
            Weight::new(weight.name, weight.shape.clone(), values, weight.rule.clone(), weight.sharding)
        };
        let mut fast = Convolution::new("fast", shape, window, single(&doubles), Some(single(&bias)));
        let mut exact = Convolution::new("exact", shape, window, doubles, Some(bias));
        let batch = 5;
        for threads in [1, 2] {
            let inputs = values(3, batch * shape.size());
            let error = values(4, batch * Layer::<f64>::output(&exact).size());
            let mut outputs = vec![0.0; error.len()];
            let mut input_error = vec![0.0; inputs.len()];
            let pass = Pass { threads, ..Pass::alone(batch, true, 0) };
            exact.fprop(&pass, &inputs, &mut outputs).expect("it computes");
            exact.bprop(&pass, &inputs, &outputs, &error, Some(&mut input_error)).expect("it computes");
            let narrow = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<f32>>();
            let mut fast_outputs = vec![f32::NAN; error.len()];
            let mut fast_error = vec![f32::NAN; inputs.len()];
            let pass = Pass { threads, ..Pass::alone(batch, true, 0) };
            fast.fprop(&pass, &narrow(&inputs), &mut fast_outputs).expect("it computes");
            let fast_copy = fast_outputs.clone();
            fast.bprop(&pass, &narrow(&inputs), &fast_copy, &narrow(&error), Some(&mut fast_error))
                .expect("it computes");
            let close = |one: &[f64], other: &[f32]| {
                assert_eq!(one.len(), other.len());
                for (one, other) in one.iter().zip(other) {
                    assert!(
                        (one - f64::from(*other)).abs() < 2e-4 * (1.0 + one.abs()),
                        "{one} {other} {window:?}"
                    );
                    seen += 1;
                }
            };
            let mut close = close;
            close(&outputs, &fast_outputs);
            close(&input_error, &fast_error);
            for (exact, fast) in exact.weights().iter().zip(fast.weights()) {
                close(&exact.gradient, &fast.gradient);
            }
        }
    }
    assert!(seen > 1000);
}

#[test]
fn a_nan_is_passed_on() {
    let shape = Shape::new(1, 4, 4);
    let layers: [Box<dyn Layer<f64>>; 5] = [
        Box::new(ActivationLayer::new("rectified", shape, Activation::Rectified)),
        Box::new(ActivationLayer::new("leaky", shape, Activation::Leaky(0.1))),
        Box::new(ActivationLayer::new("softplus", shape, Activation::Softplus)),
        Box::new(Pooling::new("four", Pool::Max, shape, window([2, 2], [2, 2], [0, 0]))),
        Box::new(Pooling::new("nine", Pool::Max, shape, window([3, 3], [1, 1], [1, 1]))),
    ];
    for mut layer in layers {
        for place in 0..shape.size() {
            let mut inputs = values(5, shape.size());
            inputs[place] = f64::NAN;
            let mut outputs = vec![0.0; layer.output().size()];
            layer.fprop(&Pass::alone(1, true, 0), &inputs, &mut outputs).expect("it computes");
            let lost = outputs.iter().filter(|output| output.is_nan()).count();
            assert!(lost > 0 && lost < outputs.len(), "{} at {place}: {outputs:?}", layer.name());
        }
    }
}

#[test]
fn convolutions_of_large_images_are_linear_in_their_inputs_and_filters() {
    // Large enough that the columns of an image take several bands; ⟨conv x, e⟩ = ⟨x, error of x⟩ = ⟨w, gradient of w⟩.
    for (maps, stride, padding) in [(2, [1, 1], [2, 2]), (17, [1, 1], [0, 0]), (3, [2, 1], [1, 0])] {
        let (input, filters) = (Shape::new(4, 61, 50), weight("weights", &[maps, 4, 5, 5], 3));
        let mut layer =
            Convolution::new("conv", input, window([5, 5], stride, padding), filters.clone(), None);
        for threads in [1, 2] {
            let pass = Pass { threads, ..Pass::alone(2, true, 0) };
            let (inputs, error) =
                (values(4, 2 * input.size()), values(5, 2 * Layer::<f64>::output(&layer).size()));
            let (mut outputs, mut input_error) = (vec![f64::NAN; error.len()], vec![f64::NAN; inputs.len()]);
            layer.fprop(&pass, &inputs, &mut outputs).expect("it computes");
            layer.bprop(&pass, &inputs, &outputs, &error, Some(&mut input_error)).expect("it computes");
            let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
            let expected = dot(&outputs, &error);
            let by_inputs = dot(&inputs, &input_error);
            let by_filters = dot(&filters.values, &layer.weights()[0].gradient);
            let close = |found: f64| (found - expected).abs() < 1e-9 * dot(&outputs, &outputs).abs();
            assert!(close(by_inputs) && close(by_filters), "{expected} {by_inputs} {by_filters}");
            // One output of the last band, computed directly.
            let output = Layer::<f64>::output(&layer);
            let (row, column) = (output.rows - 3, output.columns - 3);
            let seen = |map: usize, at: usize| {
                let (row, column) =
                    (row * stride[0] + at / 5 - padding[0], column * stride[1] + at % 5 - padding[1]);
                inputs[(map * input.rows + row) * input.columns + column]
            };
            let sum: f64 = (0..100).map(|at| filters.values[at] * seen(at / 25, at % 25)).sum();
            assert!((sum - outputs[row * output.columns + column]).abs() < 1e-12);
        }
    }
}
