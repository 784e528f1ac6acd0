//! Weights in a parameter table: each worker pulls them, trains on its own samples, and pushes its change.

use unisono::tables::{ArrayTable, Consistency, Role, TableOptions, Tables};
use unisono::{Result, World};

use super::arrangement::{Arrangement, Mode};
use super::comm_timer::CommTimer;
use crate::experiment::{Experiment, ModelKind, Node};
use crate::models::Network;
use crate::number::Number;
use crate::weight::Weight;

/// Creates the table of a run in the mode `table`.
pub(crate) struct TableTraining {
    tables: Tables,
    consistency: Consistency,
}

impl TableTraining {
    /// Joins the tables of a world if the experiment requests them. All ranks must call this.
    pub(crate) fn new(world: &World, experiment: &Experiment) -> Result<Option<TableTraining>> {
        let Some(node) = experiment.resolved.get("distributed") else { return Ok(None) };
        if world.size() == 1 || Arrangement::new(experiment, world.size())?.mode != Mode::Table {
            return Ok(None);
        }
        if let ModelKind::SparseAutoencoder { .. } = experiment.model {
            let expected = "another mode for a sparse_autoencoder, whose filters keep length one";
            return Err(node.location.error("distributed", expected, "table", "use halo or data"));
        }
        if experiment.deterministic {
            let expected = "another mode for a deterministic run";
            return Err(node.location.error("distributed", expected, "table", "use data, halo or vector"));
        }
        let text = node.get("consistency").and_then(Node::text).unwrap_or("async");
        let consistency = match Consistency::parse(text) {
            Ok(Consistency::Average) | Err(_) => {
                let location = &node.get("consistency").unwrap_or(node).location;
                let expected = "async, bsp, bsp:backup=1 or ssp:3";
                return Err(location.error("consistency", expected, format!("`{text}`"), "choose one"));
            }
            Ok(consistency) => consistency,
        };
        Ok(Some(TableTraining { tables: Tables::join(world, Role::Both)?, consistency }))
    }

    /// Creates a table with the weights of worker 0. All workers must call this.
    pub(crate) fn create_table<T: Number>(
        &self,
        network: &mut Network<T>,
        comm: CommTimer,
    ) -> Result<SharedWeights<T>> {
        let pulled: Vec<T> = weights(network).flat_map(|weight| weight.values.iter().copied()).collect();
        let consistency = self.consistency;
        let options = TableOptions { name: Some("weights".into()), consistency, ..TableOptions::default() };
        let table = ArrayTable::create(&self.tables, pulled.len(), Some(&pulled), options)?;
        Ok(SharedWeights { tables: self.tables.clone(), table, consistency, pulled, comm })
    }
}

/// The weights of a network, consecutively, in a table.
pub(crate) struct SharedWeights<T: Number> {
    tables: Tables,
    table: ArrayTable<T>,
    consistency: Consistency,
    /// The weights as this worker last pulled them.
    pulled: Vec<T>,
    comm: CommTimer,
}

fn weights<T: Number>(network: &mut Network<T>) -> impl Iterator<Item = &mut Weight<T>> {
    network.layers().iter_mut().flat_map(|layer| layer.weights())
}

impl<T: Number> SharedWeights<T> {
    /// Pulls the current weights from the table.
    pub(crate) fn pull(&mut self, network: &mut Network<T>) -> Result<()> {
        self.comm.timed("get", || self.table.get(&mut self.pulled))?;
        let mut rest = &self.pulled[..];
        for weight in weights(network) {
            let (own, after) = rest.split_at(weight.values.len());
            weight.values.copy_from_slice(own);
            rest = after;
        }
        network.layers().iter_mut().for_each(|layer| layer.after_update());
        Ok(())
    }

    /// Scales gradients, which are a worker's share of the global batch, to those of a batch of its own.
    pub(crate) fn scale_gradients(&self, network: &mut Network<T>) {
        let workers = T::of(self.tables.workers() as f64);
        for weight in weights(network) {
            weight.gradient.iter_mut().for_each(|gradient| *gradient *= workers);
        }
    }

    /// Pushes this worker's share of its change since the last pull.
    ///
    /// For rules that are linear in the gradient (descent, momentum, nesterov, decay), the changes sum to the update of a
    /// single process on the global batch. For other rules, such as adam, they sum to the mean of the workers' updates.
    pub(crate) fn push(&mut self, network: &mut Network<T>) -> Result<()> {
        let share = T::of(1.0 / self.tables.workers() as f64);
        let mut change = Vec::with_capacity(self.pulled.len());
        for weight in weights(network) {
            let before = &self.pulled[change.len()..];
            change.extend(weight.values.iter().zip(before).map(|(after, before)| (*after - *before) * share));
        }
        self.comm.timed("add", || {
            self.table.add(&change)?;
            if let Consistency::Ssp { .. } = self.consistency {
                self.table.tick()?;
            }
            Ok(())
        })
    }

    /// Waits until all pushes are in the table, and pulls the result. All workers must call this.
    pub(crate) fn synchronize(&mut self, network: &mut Network<T>) -> Result<()> {
        self.comm.timed("barrier", || self.tables.barrier())?;
        self.pull(network)
    }
}
