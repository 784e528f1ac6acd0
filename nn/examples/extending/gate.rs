//! A user-defined layer: y = x / (1 + e^(−a·x)), with one learned a per map.

use unisono::Result;
use unisono_nn::{
    Layer, LayerFactory, LayerInfo, LayerPlan, Node, Number, Pass, ReceptiveField, Rule, Shape, Weight,
    WeightSharding,
};

/// The layer. With a = 1 it is SiLU, also known as swish.
pub struct Gate<T> {
    name: String,
    shape: Shape,
    steepness: Weight<T>,
}

fn logistic<T: Number>(value: T) -> T {
    T::ONE / (T::ONE + (-value).exponential())
}

impl<T: Number> Layer<T> for Gate<T> {
    /// Each output depends only on the input at the same position, so no halo is needed.
    fn info(&self) -> LayerInfo<'_> {
        LayerInfo {
            name: &self.name,
            input: self.shape,
            output: self.shape,
            receptive_field: ReceptiveField::Point,
        }
    }

    fn fprop(&mut self, _: &Pass<'_, T>, inputs: &[T], outputs: &mut [T]) -> Result<()> {
        let (area, maps) = (self.shape.area(), self.shape.maps);
        for (index, (output, input)) in outputs.iter_mut().zip(inputs).enumerate() {
            *output = *input * logistic(self.steepness.values[index / area % maps] * *input);
        }
        Ok(())
    }

    fn bprop(
        &mut self,
        _: &Pass<'_, T>,
        inputs: &[T],
        _outputs: &[T],
        error: &[T],
        input_error: Option<&mut [T]>,
    ) -> Result<()> {
        let (area, maps) = (self.shape.area(), self.shape.maps);
        self.steepness.gradient.fill(T::ZERO);
        let mut below = input_error;
        for (index, (error, input)) in error.iter().zip(inputs).enumerate() {
            let map = index / area % maps;
            let steepness = self.steepness.values[map];
            let gate = logistic(steepness * *input);
            let slope = gate * (T::ONE - gate);
            self.steepness.gradient[map] += *error * *input * *input * slope;
            if let Some(below) = &mut below {
                below[index] = *error * (gate + *input * steepness * slope);
            }
        }
        Ok(())
    }

    fn weights(&mut self) -> Vec<&mut Weight<T>> {
        vec![&mut self.steepness]
    }
}

/// Builds gates from experiment files: `{type: own, kind: gate, settings: {steepness: 2}}`.
pub struct Gates;

impl Gates {
    fn build<T: Number>(plan: &LayerPlan<'_>) -> Gate<T> {
        let first = plan.settings.get("steepness").and_then(Node::number).unwrap_or(1.0);
        let maps = plan.input.maps;
        // The weight is replicated on every rank; its gradient is the sum over the ranks that hold parts of the maps.
        let spread = WeightSharding::Replicated;
        let rule = Rule { weight_decay: 0.0, ..plan.spec.rule.clone() };
        let steepness = Weight::new("steepness", vec![maps], vec![T::of(first); maps], rule, spread);
        Gate { name: plan.spec.name.clone(), shape: plan.input, steepness }
    }
}

impl LayerFactory for Gates {
    fn output(&self, plan: &LayerPlan<'_>) -> Result<Shape> {
        let steepness = plan.settings.get("steepness");
        if let Some(wrong) = steepness.filter(|node| node.number().is_none()) {
            let advice = "write, for example, `steepness: 1.5`";
            return Err(wrong.location.error("gate", "a number as `steepness`", wrong.to_string(), advice));
        }
        Ok(plan.input)
    }

    fn build_single(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f32>>> {
        Ok(Box::new(Gates::build(plan)))
    }

    fn build_double(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f64>>> {
        Ok(Box::new(Gates::build(plan)))
    }
}
