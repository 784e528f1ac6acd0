//! An error that a layer returns on one rank ends the run on all ranks, and none of them waits for its deadline.

use std::time::{Duration, Instant};

use unisono::{Error, Result};
use unisono_nn::{
    Experiment, Extensions, Layer, LayerFactory, LayerInfo, LayerPlan, Number, Pass, ReceptiveField, Shape,
    TrainOptions, train_on,
};

/// The identity; fails on rank 1 in the second batch.
struct Fragile {
    name: String,
    shape: Shape,
    backward: bool,
}

impl Fragile {
    fn check<T: Number>(&self, pass: &Pass<'_, T>, backward: bool) -> Result<()> {
        if pass.all.rank_and_size().0 != 1 || pass.step != 1 || backward != self.backward {
            return Ok(());
        }
        Err(Error::usage("fragile layer", "sound values", "a crack", "replace the layer"))
    }
}

impl<T: Number> Layer<T> for Fragile {
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Point,
        }
    }

    fn fprop(&mut self, pass: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        outputs.copy_from_slice(inputs);
        self.check(pass, false)
    }

    fn bprop(
        &mut self,
        pass: &Pass<'_, T>,
        _inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        if let Some(input_error) = input_error {
            input_error.copy_from_slice(error);
        }
        self.check(pass, true)
    }
}

struct FragileMaker;

impl FragileMaker {
    fn build(plan: &LayerPlan<'_>) -> Box<Fragile> {
        let backward = plan.settings.get("backward").is_some();
        Box::new(Fragile { name: plan.spec.name.clone(), shape: plan.input, backward })
    }
}

impl LayerFactory for FragileMaker {
    fn output(&self, plan: &LayerPlan<'_>) -> Result<Shape> {
        Ok(plan.input)
    }

    fn build_single(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f32>>> {
        Ok(FragileMaker::build(plan))
    }

    fn build_double(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f64>>> {
        Ok(FragileMaker::build(plan))
    }
}

#[test]
fn an_error_of_a_layer_ends_the_run_on_all_ranks() {
    const TIMEOUT: Duration = Duration::from_secs(120);
    let mut extensions = Extensions::default();
    extensions.add_layer("fragile", FragileMaker);
    // Batch normalisation waits in a collective of all ranks, the other layers in those of smaller groups.
    for (spread, norm) in [("data", false), ("data", true), ("halo", false), ("halo", true)] {
        for settings in ["", ", settings: {backward: 1}"] {
            let norm = if norm { "- {type: batch_norm}" } else { "" };
            let text = format!(
                "
epochs: 2
batch_size: 4
data: {{type: uniform_random, train: 12, test: 4, shape: [1, 8, 8], classes: 2}}
distributed: {spread}
model:
  type: network
  cost: sum_of_squares
  layers:
    - {{type: convolution, maps: 2, kernel: 3, padding: 1}}
    - {{type: own, kind: fragile{settings}}}
    {norm}
    - {{type: convolution, maps: 2, kernel: 3, padding: 1}}
    - {{type: fully_connected, outputs: 2}}
"
            );
            let experiment =
                Experiment::parse_with("fragile.yaml", &text, &[], &extensions).expect("it is right");
            let out = std::env::temp_dir().join(format!("unisono-fragile-{}", std::process::id()));
            let options = TrainOptions { out: out.clone(), resume: false, trace: None };
            let began = Instant::now();
            let failures = unisono::testing::spawn(3, |group| {
                let group = group.with_timeout(TIMEOUT);
                train_on(&group, &experiment, &options, &mut ()).expect_err("a layer failed")
            });
            assert!(began.elapsed() < TIMEOUT / 2, "{spread} {norm}: {:?}", began.elapsed());
            assert!(failures[1].own, "{spread} {norm}: {failures:?}");
            let text = failures[1].error.to_string();
            assert!(text.contains("a crack") && text.contains("replace the layer"), "{text}");
            let _ = std::fs::remove_dir_all(&out);
        }
    }
}
