//! The network of one rank: for each layer of an experiment, the part of it that this rank computes.

use unisono::Result;

use super::arrangement::Mode;
use super::company::Company;
use super::convolution::{ConvolutionPart, Room};
use super::divided::{Divided, Gathered};
use super::halos::Halos;
use super::held::Held;
use super::tower::{Crossing, Idle, Tower};
use crate::experiment::{Experiment, LayerKind, LayerSpec};
use crate::layers::{
    Activation, ActivationLayer, BatchNorm, Convolution, CrossMapResponse, Dropout, FullyConnected, Layer,
    LocalContrast, LocalFilter, Pool, Pooling, Reach, overlaps,
};
use crate::models::Network;
use crate::number::Number;
use crate::shape::{Shape, Window};
use crate::weight::{Cut, Spread, Weight};

/// A rank's layers, and what it holds of the input and after each layer.
pub(crate) struct Built<T> {
    pub(crate) network: Network<T>,
    pub(crate) input: Held,
    pub(crate) held: Vec<Held>,
}

struct Builder<'a, T> {
    company: &'a Company,
    seed: u64,
    /// Whether all results have the same bits as those of one process.
    exact: bool,
    room: Room<T>,
    layers: Vec<Box<dyn Layer<T>>>,
    held: Vec<Held>,
}

/// What a rank holds of samples.
pub(crate) fn input(company: &Company, shape: Shape) -> Held {
    match company.mode {
        _ if company.team.group.size() == 1 => Held::Whole(shape),
        Mode::Halo if shape.area() > 1 => Held::Patch(shape),
        _ => Held::Slice(shape),
    }
}

/// Builds the part of an experiment's network that this rank computes.
pub(crate) fn build<T: Number>(
    experiment: &Experiment,
    company: &Company,
    shape: Shape,
    targets: usize,
) -> Result<Built<T>> {
    let shapes = experiment.shapes_in_parts(shape, targets, company.parts())?;
    let is_own = |spec: &&LayerSpec| matches!(spec.kind, LayerKind::Own(_));
    if let Some(own) = experiment.layers.iter().find(is_own).filter(|_| experiment.deterministic) {
        let what = format!("layer `{}`", own.name);
        let expected = "layers of this crate alone where many processes are to give the same bits";
        return Err(own.place.error(&what, expected, "a layer of a program's own", "remove `deterministic`"));
    }
    let input = input(company, shape);
    let (seed, exact) = (experiment.seed, experiment.deterministic);
    let mut builder =
        Builder { company, seed, exact, room: Room::default(), layers: Vec::new(), held: Vec::new() };
    let mut held = input;
    for (spec, output) in experiment.layers.iter().zip(&shapes[1..]) {
        held = builder.layer(spec, held, *output)?;
    }
    if let Held::Patch(_) | Held::Slice(_) = held {
        builder.gather("outputs", held);
    }
    Ok(Built { network: Network::new(builder.layers, experiment.cost), input, held: builder.held })
}

impl<T: Number> Builder<'_, T> {
    fn push(&mut self, layer: impl Layer<T> + 'static, held: Held) -> Held {
        self.layers.push(Box::new(layer));
        self.held.push(held);
        held
    }

    /// Brings parts together.
    fn gather(&mut self, name: &str, held: Held) -> Held {
        let whole = held.whole();
        let layer = Gathered {
            name: format!("{name}.gather"),
            input: held.own(self.company),
            output: whole,
            team: self.company.team.clone(),
            places: (0..self.company.team.group.size())
                .map(|rank| held.indices_of(self.company, rank))
                .collect(),
        };
        self.push(layer, Held::Whole(whole))
    }

    /// Adds a layer and the activation after it; what this rank holds of the outputs.
    fn layer(&mut self, spec: &LayerSpec, held: Held, output: Shape) -> Result<Held> {
        let held = match (&spec.kind, held) {
            (LayerKind::FullyConnected { .. }, _) => self.fully_connected(spec, held, output),
            (LayerKind::Activation, _) => return Ok(self.activation(spec.name.clone(), spec, held)),
            (_, Held::Whole(shape)) => self.whole(spec, shape)?,
            (LayerKind::Own(_), Held::Patch(shape)) => self.own(spec, shape, output)?,
            (_, Held::Patch(shape)) => self.patch(spec, shape, output),
            (LayerKind::Dropout { keep }, Held::Slice(_)) => self.dropout(spec, *keep, held),
            (_, Held::Slice(shape)) => {
                // Only a few layers understand a part of a vector; the others get all of it.
                self.gather(&spec.name, held);
                self.whole(spec, shape)?
            }
        };
        if spec.activation == Activation::Identity {
            return Ok(held);
        }
        Ok(self.activation(format!("{}.activation", spec.name), spec, held))
    }

    fn activation(&mut self, name: String, spec: &LayerSpec, held: Held) -> Held {
        // A softmax is over all numbers.
        let held = match (spec.activation, held) {
            (Activation::Softmax, Held::Patch(_) | Held::Slice(_)) => self.gather(&name, held),
            _ => held,
        };
        self.push(ActivationLayer::new(name, held.own(self.company), spec.activation), held)
    }

    fn dropout(&mut self, spec: &LayerSpec, keep: f64, held: Held) -> Held {
        let own = held.own(self.company);
        let layer = Dropout::new(spec.name.clone(), own, keep, self.seed);
        self.push(layer.at(held.indices(self.company), held.whole().size()), held)
    }

    /// A layer that every rank of a team computes in full.
    fn whole(&mut self, spec: &LayerSpec, shape: Shape) -> Result<Held> {
        let plain = LayerSpec { activation: Activation::Identity, ..spec.clone() };
        let mut layers = plain.build::<T>(shape, self.seed)?;
        let mut layer = layers.pop().expect("a layer is built");
        let is_team = self.company.team.group.size() > 1;
        for weight in layer.weights().into_iter().filter(|_| is_team) {
            weight.spread = Spread::Whole;
        }
        let output = layer.output();
        let sums = self.company.data.clone();
        Ok(match spec.kind {
            LayerKind::BatchNorm { .. } | LayerKind::Own(_) => {
                self.push(Tower::new(layer, (shape, output), None, (sums.clone(), sums)), Held::Whole(output))
            }
            _ => {
                self.layers.push(layer);
                self.held.push(Held::Whole(output));
                Held::Whole(output)
            }
        })
    }

    fn fully_connected(&mut self, spec: &LayerSpec, held: Held, output: Shape) -> Held {
        let input = held.whole();
        let weights: Weight<T> = spec.weight(self.seed, "weights", input, output);
        let bias = spec.bias.map(|value| spec.vector("bias", output.maps, value, Spread::Whole));
        let company = self.company;
        if company.team.group.size() == 1 {
            return self
                .push(FullyConnected::new(spec.name.clone(), input, weights, bias), Held::Whole(output));
        }
        // A patch is not made of whole parts of a layer's inputs, whose products are added up in a fixed order.
        let held = match held {
            Held::Patch(_) if self.exact => self.gather(&spec.name, held),
            _ => held,
        };
        let size = input.size();
        let range = company.slice(size);
        let (kept, slice) = match held {
            Held::Whole(_) => (range.clone().collect(), Some((size, range.clone()))),
            _ => (held.indices(company), None),
        };
        let own = Shape::flat(kept.len());
        let weights = weights.part(Cut { kept, length: size, inner: 1 });
        let inner = FullyConnected::new(spec.name.clone(), own, weights, bias);
        let inner = if let Held::Patch(_) = held { inner } else { inner.of(size, range) };
        self.push(Divided::new(inner, company.team.clone(), slice), Held::Whole(output))
    }

    /// A layer that a program added: in parts where each place is by itself, else in full on every rank of a team.
    fn own(&mut self, spec: &LayerSpec, shape: Shape, output: Shape) -> Result<Held> {
        let (company, held) = (self.company, Held::Patch(shape));
        let plain = LayerSpec { activation: Activation::Identity, ..spec.clone() };
        let build = |shape: Shape| plain.build::<T>(shape, self.seed).map(|mut layers| layers.remove(0));
        let mut whole = build(shape)?;
        let ranks = 0..company.team.group.size();
        let by_itself = whole.reach() == Reach::Place
            && [output.rows, output.columns] == [shape.rows, shape.columns]
            && ranks.into_iter().all(|rank| !held.indices_of(company, rank).is_empty());
        if by_itself {
            let mut part = build(held.own(company))?;
            let mut pairs = whole.weights().into_iter().zip(part.weights());
            let same = |(whole, part): (&mut Weight<T>, &mut Weight<T>)| {
                whole.shape == part.shape && part.spread == Spread::Everywhere
            };
            if pairs.all(same) {
                let shapes = (held.own(company), Held::Patch(output).own(company));
                return Ok(self.push(
                    Tower::new(part, shapes, None, (company.world.clone(), company.world.clone())),
                    Held::Patch(output),
                ));
            }
        }
        self.gather(&spec.name, held);
        self.whole(spec, shape)
    }

    /// A layer of a tower.
    fn patch(&mut self, spec: &LayerSpec, shape: Shape, output: Shape) -> Held {
        let (company, name, seed) = (self.company, spec.name.clone(), self.seed);
        let held = Held::Patch(output);
        let (own, own_output) = (Held::Patch(shape).own(company), held.own(company));
        let empty = own_output.size() == 0;
        let bare = |window: &Window| Window { padding: [0, 0], ..*window };
        let mut halos = None;
        let mut padded = |window: &Window, pool: Option<Pool>| {
            let made = Halos::new(company, shape, *window, pool);
            let padded = made.padded;
            halos = Some(made);
            padded
        };
        let weight = || spec.weight(seed, "weights", shape, output);
        let idle = |input: Shape, weights: Vec<Weight<T>>| -> Box<dyn Layer<T>> {
            let reach = crate::layers::Reach::Place;
            let filters = matches!(spec.kind, LayerKind::Local { .. });
            let crossing = match &spec.kind {
                LayerKind::Pooling { window, .. } if !overlaps(*window) => Crossing::Plain,
                LayerKind::Response { .. } => Crossing::Nothing,
                _ => Crossing::Overlapping,
            };
            Box::new(Idle {
                name: spec.name.clone(),
                input,
                output: own_output,
                reach,
                weights,
                crossing,
                filters,
            })
        };
        let inner: Box<dyn Layer<T>> = match &spec.kind {
            LayerKind::Convolution { maps, window } => {
                let bias = spec.bias.map(|value| spec.vector("bias", *maps, value, Spread::Everywhere));
                let whole = Convolution::new(name, shape, *window, weight(), bias);
                return self.push(ConvolutionPart::new(whole, company, self.room.clone()), held);
            }
            LayerKind::Local { window, unit_rows, maps } => {
                let places = Shape::new(1, output.rows, output.columns);
                let kept = Held::Patch(places).indices(company);
                let inner = weight().size() / (maps * output.area());
                let weights = weight().part(Cut { kept, length: output.area(), inner });
                let seen = padded(window, None);
                match empty {
                    true => idle(seen, vec![weights]),
                    false => Box::new(LocalFilter::new(name, seen, bare(window), weights, *unit_rows)),
                }
            }
            LayerKind::Pooling { pool, window } => {
                let seen = padded(window, Some(*pool));
                match empty {
                    true => idle(seen, Vec::new()),
                    false => Box::new(Pooling::new(name, *pool, seen, bare(window))),
                }
            }
            LayerKind::Contrast { kernel } => {
                let window =
                    Window { kernel: *kernel, stride: [1, 1], padding: [kernel[0] / 2, kernel[1] / 2] };
                let one = Shape::new(1, shape.rows, shape.columns);
                let around = Halos::new(company, one, window, None);
                Box::new(LocalContrast::new(name, own, *kernel).with(Box::new(around)))
            }
            LayerKind::Response { size, alpha, beta } => match empty {
                true => idle(own, Vec::new()),
                false => Box::new(CrossMapResponse::new(name, own, *size, *alpha, *beta)),
            },
            LayerKind::BatchNorm { kept, epsilon } => {
                let scale = spec.vector("scale", shape.maps, 1.0, Spread::Everywhere);
                let shift = spec.vector("shift", shape.maps, 0.0, Spread::Everywhere);
                Box::new(BatchNorm::new(name, own, (scale, shift), *kept, *epsilon))
            }
            LayerKind::Dropout { keep } => return self.dropout(spec, *keep, held),
            LayerKind::Activation | LayerKind::FullyConnected { .. } | LayerKind::Own(_) => {
                unreachable!("these come first")
            }
        };
        // Filters of a place of their own are learned from other samples, all others from other places too.
        let gradients =
            if matches!(spec.kind, LayerKind::Local { .. }) { &company.data } else { &company.world };
        let sums = (company.world.clone(), gradients.clone());
        self.push(Tower::new(inner, (own, own_output), halos, sums), held)
    }
}
