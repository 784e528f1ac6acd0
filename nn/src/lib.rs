//! Layers, models, data sets and experiments: a YAML file that trains on one process or many.
//!
//! An [`Experiment`] is what a file specifies. [`train`] runs it in this process, [`train_in_world`] on all ranks of a world, and
//! both write a folder of results. The crate `unisono-cli` has the program `unisono train` over them.
//!
//! ```
//! use unisono_nn::{Experiment, TrainOptions, train};
//!
//! let text = "
//! epochs: 10
//! batch_size: 25
//! data: iris
//! rule: {type: momentum, lr: 0.1, momentum: 0.9}
//! model:
//!   type: network
//!   cost: softmax_cross_entropy
//!   layers:
//!     - {type: fully_connected, name: hidden, outputs: 8, activation: tanh}
//!     - {type: fully_connected, name: output, outputs: 3}
//! ";
//! let experiment = Experiment::parse("iris.yaml", text, &[])?;
//! let out = std::env::temp_dir().join(format!("unisono-iris-{}", std::process::id()));
//! let options = TrainOptions { out: out.clone(), resume: false, trace: None };
//! let summary = train(&experiment, &options, &mut ())?;
//! assert_eq!(summary.metrics.len(), 10);
//! assert!(out.join("metrics.csv").is_file() && summary.checkpoint.is_file());
//! # std::fs::remove_dir_all(&out).unwrap();
//! # Ok::<(), unisono::Error>(())
//! ```

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
    CustomData, CustomLayer, Experiment, Extensions, LayerFactory, LayerKind, LayerPlan, LayerSpec,
    ModelKind, Node, NodeValue, Precision, SourceLocation, reference, schema,
};
pub use initial::Initial;
pub use layers::{
    Activation, ActivationLayer, BatchNorm, Convolution, CrossMapResponse, Dropout, FullyConnected, Layer,
    LayerInfo, LocalContrast, LocalFilter, Pass, Pool, Pooling, ReceptiveField, SingleProcess, Sums,
};
pub use models::{Network, Phase, Phases, PretrainCost, Pretraining};
pub use number::Number;
pub use random::RandomStream;
pub use rules::{Rule, Schedule};
pub use running::{
    Comparison, EpochMetrics, GradientCheck, Prediction, Progress, Summary, TrainOptions, Trainer, Watch,
    check, check_gradients, compare, predict, train, train_in_world, train_on,
};
pub use shape::{ConvWindow, Shape};
pub use timeline::{Activity, Timeline};
pub use weight::{Weight, WeightShard, WeightSharding};
