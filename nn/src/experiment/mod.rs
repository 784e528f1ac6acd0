//! Experiment files: from YAML to a trainable model.

mod aliases;
mod build;
mod compose;
mod describe;
mod extensions;
mod format;
mod memory_limit;
mod neon;
mod node;
mod read;
mod reference;
mod schema;
mod spec;
#[cfg(test)]
mod tests;
mod yaml;

pub(crate) use compose::read as read_tree;
pub use extensions::{CustomData, CustomLayer, Extensions, LayerFactory, LayerPlan};
pub(crate) use memory_limit::RankShare;
pub use node::{Node, SourceLocation, Value as NodeValue};
pub use reference::reference;
pub use schema::schema;
pub use spec::{Experiment, LayerKind, LayerSpec, ModelKind, Precision};
pub(crate) use yaml::flow;
