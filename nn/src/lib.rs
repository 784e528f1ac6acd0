//! Layers, models, data sets and experiments: a YAML file that trains on one process or many.

mod cost;
mod data;
mod distributed;
mod exact;
mod experiment;
#[cfg(test)]
mod fuzz;
mod initial;
mod layers;
mod memory;
mod models;
mod number;
mod product;
mod random;
mod rules;
mod running;
mod shape;
mod threads;
mod timeline;
mod tree;
mod weight;

pub use cost::Cost;
pub use data::{
    Array, Arrays, DataSet, FeatureIds, Inputs, Picture, Source, SparseFormat, SparseReader, SparseSamples,
    Split, Store, Stored, Targets, Values, decode_png, encode_png, read_npy, write_npy,
};
pub use distributed::{Arrangement, Failure, Mode};
pub use experiment::{
    Experiment, Extensions, LayerKind, LayerMaker, LayerPlan, LayerSpec, ModelKind, Node, NodeValue, OwnData,
    OwnLayer, Place, Precision, reference, schema,
};
pub use initial::Initial;
pub use layers::{
    Activation, ActivationLayer, Alone, BatchNorm, Convolution, CrossMapResponse, Dropout, Facts,
    FullyConnected, Layer, LocalContrast, LocalFilter, Pass, Pool, Pooling, Reach, Sums,
};
pub use models::{Network, Phase, Phases, PretrainCost, Pretraining};
pub use number::Number;
pub use random::Stream;
pub use rules::{Rule, Schedule};
pub use running::{
    Comparison, EpochMetrics, GradientCheck, Prediction, Progress, Summary, TrainOptions, Trainer, Watch,
    check, check_gradients, compare, predict, train, train_in_world, train_on,
};
pub use shape::{Shape, Window};
pub use timeline::{Activity, Timeline};
pub use weight::{Cut, Spread, Weight};
