//! User-defined data sets and layers, by the names that files use for them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use unisono::error::nearest::advice;
use unisono::{Error, Result};

use super::node::Node;
use super::spec::LayerSpec;
use crate::data::DataSet;
use crate::layers::Layer;
use crate::number::Number;
use crate::shape::Shape;

/// The inputs to building a user-defined layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerPlan<'a> {
    /// The layer's name, initial weights and learning rule.
    pub spec: &'a LayerSpec,
    /// The layer's `settings` in the file; an empty map if there are none.
    pub settings: &'a Node,
    /// The shape of an input.
    pub input: Shape,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// Builds user-defined layers. Files refer to it as `{type: own, kind: NAME, settings: {…}}`.
///
/// The two `build` methods usually call one generic function with each number type.
pub trait LayerFactory: Send + Sync {
    /// The output shape, or an error if the settings or the input do not fit.
    fn output(&self, plan: &LayerPlan<'_>) -> Result<Shape>;
    /// The layer in single precision.
    fn build_single(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f32>>>;
    /// The layer in double precision.
    fn build_double(&self, plan: &LayerPlan<'_>) -> Result<Box<dyn Layer<f64>>>;
}

type DataFactory = dyn Fn(&Node, u64) -> Result<DataSet> + Send + Sync;

/// The data sets and layers that a program adds to those of this crate.
///
/// ```
/// use unisono_nn::{DataSet, Experiment, Extensions, Inputs, Shape, Split, Targets};
/// let mut extensions = Extensions::default();
/// extensions.add_data("parity", |settings, _seed| {
///     let count = settings.get("count").and_then(|node| node.whole()).unwrap_or(8) as usize;
///     let inputs = Inputs::Singles((0..count).map(|number| number as f32).collect());
///     let targets = Targets::Classes((0..count).map(|number| number as u32 % 2).collect());
///     let train = Split { count, inputs, targets };
///     Ok(DataSet { shape: Shape::flat(1), outputs: 2, train, test: Split::empty() })
/// });
/// let text = "{epochs: 1, batch_size: 4, data: {type: own, kind: parity, settings: {count: 6}}, model: {type: network, \
///              cost: softmax_cross_entropy, layers: [{type: fully_connected, outputs: 2}]}}";
/// let experiment = Experiment::parse_with("parity.yaml", text, &[], &extensions)?;
/// assert_eq!(DataSet::load(&experiment.source, experiment.seed)?.train.count, 6);
/// assert!(Experiment::parse("parity.yaml", text, &[]).is_err(), "it was not added");
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    data: BTreeMap<String, Arc<DataFactory>>,
    layers: BTreeMap<String, Arc<dyn LayerFactory>>,
}

impl Extensions {
    /// Adds a data set, which `factory` creates from its `settings` in the file and the seed.
    pub fn add_data(
        &mut self,
        name: &str,
        factory: impl Fn(&Node, u64) -> Result<DataSet> + Send + Sync + 'static,
    ) {
        self.data.insert(name.into(), Arc::new(factory));
    }

    /// Adds a layer.
    pub fn add_layer(&mut self, name: &str, factory: impl LayerFactory + 'static) {
        self.layers.insert(name.into(), Arc::new(factory));
    }

    pub(super) fn data(&self, node: &Node) -> Result<CustomData> {
        let (name, factory) = find(&self.data, node, "data set")?;
        Ok(CustomData { name, settings: settings(node), factory })
    }

    pub(super) fn layer(&self, node: &Node) -> Result<CustomLayer> {
        let (name, factory) = find(&self.layers, node, "layer")?;
        Ok(CustomLayer { name, settings: settings(node), factory })
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({:?}, {:?})", self.data.keys(), self.layers.keys())
    }
}

/// Two sets of extensions are equal if they define the same names.
impl PartialEq for Extensions {
    fn eq(&self, other: &Extensions) -> bool {
        self.data.keys().eq(other.data.keys()) && self.layers.keys().eq(other.layers.keys())
    }
}

fn find<M: ?Sized>(
    factories: &BTreeMap<String, Arc<M>>,
    node: &Node,
    what: &str,
) -> Result<(String, Arc<M>)> {
    let kind = node.get("kind");
    let name = kind.and_then(Node::text).unwrap_or_default();
    let Some(factory) = factories.get(name) else {
        let location = &kind.unwrap_or(node).location;
        let names: Vec<&str> = factories.keys().map(String::as_str).collect();
        let expected = match names.is_empty() {
            true => format!("a {what} that this program added"),
            false => format!("a {what} that this program added: {}", names.join(", ")),
        };
        let advice = advice(name, names, "add it to the program's `Extensions`");
        return Err(location.error("own", expected, format!("`{name}`"), advice));
    };
    Ok((name.into(), factory.clone()))
}

fn settings(node: &Node) -> Node {
    let empty = || Node::new(super::node::Value::Map(Vec::new()), node.location.clone());
    node.get("settings").cloned().unwrap_or_else(empty)
}

/// A data set that a program added.
#[derive(Clone)]
pub struct CustomData {
    name: String,
    settings: Node,
    factory: Arc<DataFactory>,
}

impl CustomData {
    pub(crate) fn load(&self, seed: u64) -> Result<DataSet> {
        (self.factory)(&self.settings, seed)
    }
}

/// A layer that a program added.
#[derive(Clone)]
pub struct CustomLayer {
    name: String,
    settings: Node,
    factory: Arc<dyn LayerFactory>,
}

impl CustomLayer {
    pub(super) fn output(&self, spec: &LayerSpec, input: Shape) -> Result<Shape> {
        self.factory.output(&LayerPlan { spec, settings: &self.settings, input, seed: 0 })
    }

    pub(super) fn build<T: Number>(
        &self,
        spec: &LayerSpec,
        input: Shape,
        seed: u64,
    ) -> Result<Box<dyn Layer<T>>> {
        let plan = LayerPlan { spec, settings: &self.settings, input, seed };
        let made: Box<dyn Any> = match T::NAME {
            "f32" => Box::new(self.factory.build_single(&plan)?),
            _ => Box::new(self.factory.build_double(&plan)?),
        };
        // The types are identical at run time, but the compiler cannot know that.
        let layer = made.downcast::<Box<dyn Layer<T>>>();
        layer
            .map(|layer| *layer)
            .map_err(|_| Error::internal("build layer", "its numbers are neither f32 nor f64"))
    }
}

macro_rules! shown_and_compared_by_name {
    ($type:ident) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($type), self.name)
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.name == other.name && self.settings == other.settings
            }
        }
    };
}

shown_and_compared_by_name!(CustomData);
shown_and_compared_by_name!(CustomLayer);
