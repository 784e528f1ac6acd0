//! Runs: training from a file to a folder of results, gradient checks, and predictions.

mod check;
mod checkpoint;
mod compare;
mod curve;
mod epoch;
mod events;
mod files;
mod filters;
mod folder;
mod gradients;
mod initial_weights;
mod learn;
mod metrics;
mod predict;
mod results;
mod samples;
mod settings;
mod sheet;
mod spot;
mod stimulus;
mod tensors;
mod test;
mod trace;
mod train;
mod trainer;

pub use check::{Comparison, check};
pub use compare::compare;
pub use epoch::Progress;
pub use gradients::{GradientCheck, check_gradients};
pub use metrics::EpochMetrics;
pub use predict::{Prediction, predict};
pub use train::{Summary, TrainOptions, Watch, train, train_in_world, train_on};
pub use trainer::Trainer;
