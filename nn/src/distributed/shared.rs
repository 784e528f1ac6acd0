//! Weights in a table that all workers share: each takes them, learns from its own samples, and gives back what changed.

use unisono::Result;
use unisono::tables::{ArrayTable, Consistency, TableOptions, Tables};

use crate::models::Network;
use crate::number::Number;
use crate::weight::Weight;

/// A network's weights, one after the other, in a table.
pub(crate) struct Shared<T: Number> {
    tables: Tables,
    table: ArrayTable<T>,
    consistency: Consistency,
    /// What this worker took last.
    taken: Vec<T>,
}

fn weights<T: Number>(network: &mut Network<T>) -> impl Iterator<Item = &mut Weight<T>> {
    network.layers().iter_mut().flat_map(|layer| layer.weights())
}

impl<T: Number> Shared<T> {
    /// Makes the table with the weights of worker 0. All workers call it.
    pub(crate) fn new(tables: &Tables, network: &mut Network<T>, consistency: Consistency) -> Result<Shared<T>> {
        let taken: Vec<T> = weights(network).flat_map(|weight| weight.values.iter().copied()).collect();
        let options = TableOptions { name: Some("weights".into()), consistency, ..TableOptions::default() };
        let table = ArrayTable::create(tables, taken.len(), Some(&taken), options)?;
        Ok(Shared { tables: tables.clone(), table, consistency, taken })
    }

    /// Takes the weights as they are in the table.
    pub(crate) fn take(&mut self, network: &mut Network<T>) -> Result<()> {
        self.table.get(&mut self.taken)?;
        let mut rest = &self.taken[..];
        for weight in weights(network) {
            let (own, after) = rest.split_at(weight.values.len());
            weight.values.copy_from_slice(own);
            rest = after;
        }
        Ok(())
    }

    /// Makes gradients that are a worker's share of the whole batch's as large as those of a batch of its own.
    pub(crate) fn enlarge(&self, network: &mut Network<T>) {
        let workers = T::of(self.tables.workers() as f64);
        for weight in weights(network) {
            weight.gradient.iter_mut().for_each(|gradient| *gradient *= workers);
        }
    }

    /// Adds this worker's share of what it changed since it took the weights.
    ///
    /// The changes of rules that are linear in their gradients (descent, momentum, nesterov, decay) add up to what one
    /// process does with the whole batch. Other rules, such as adam, add up to the mean of the workers' steps.
    pub(crate) fn give(&mut self, network: &mut Network<T>) -> Result<()> {
        let share = T::of(1.0 / self.tables.workers() as f64);
        let mut change = Vec::with_capacity(self.taken.len());
        for weight in weights(network) {
            let before = &self.taken[change.len()..];
            change.extend(weight.values.iter().zip(before).map(|(after, before)| (*after - *before) * share));
        }
        self.table.add(&change)?;
        if let Consistency::Ssp { .. } = self.consistency {
            self.table.tick()?;
        }
        Ok(())
    }

    /// Waits until everything that anybody gave is in the table, and takes it. All workers call it.
    pub(crate) fn settle(&mut self, network: &mut Network<T>) -> Result<()> {
        self.tables.barrier()?;
        self.take(network)
    }
}
