//! All ranks of a run, and this one's place among them.

use std::ops::Range;

use unisono::halo::{Grid, Partition};
use unisono::{Group, ReduceOp, Result};

use super::arrangement::{Arrangement, Mode};
use super::failure::Failure;
use super::faults::Faults;
use super::sums::Over;
use crate::experiment::Experiment;
use crate::layers::Sums;
use crate::memory;
use crate::models::Network;
use crate::number::Number;
use crate::weight::{Cut, Spread};

/// Gradients with more numbers than this are not worth a copy.
const SMALL: usize = 1 << 15;

/// The ranks that train one model together. A team has parts of the same samples; teams have other samples.
pub(crate) struct Company {
    pub(crate) world: Over,
    /// The ranks with parts of the same samples.
    pub(crate) team: Over,
    /// The ranks with the same part of other samples.
    pub(crate) data: Over,
    pub(crate) grid: Grid,
    pub(crate) mode: Mode,
    pub(crate) faults: Faults,
    /// How many of the ranks are on this machine, as far as it says which one it is.
    pub(crate) neighbours: usize,
}

impl Company {
    /// Arranges the ranks of a group. All of them call it.
    pub(crate) fn new(group: &Group, experiment: &Experiment) -> Result<Company> {
        let arrangement = Arrangement::new(experiment, group.size())?;
        let (team, inside) = arrangement.place(group.rank());
        let faults = Faults::default();
        let over = |group: Group| Over { group, faults: faults.clone() };
        let split = |color: usize| -> Result<Over> {
            Ok(over(group.split(Some(color as u64), group.rank() as i64)?.expect("every rank has a color")))
        };
        let machine = memory::machine();
        let mut machines = vec![0; group.size()];
        group.all_gather(&[machine.unwrap_or(0)], &mut machines)?;
        let neighbours = machines.iter().filter(|other| Some(**other) == machine).count().max(1);
        Ok(Company {
            team: split(team)?,
            data: split(inside)?,
            neighbours,
            world: over(group.clone()),
            grid: arrangement.team,
            mode: arrangement.mode,
            faults,
        })
    }

    /// Whether this rank speaks for all: it writes files and shows progress.
    pub(crate) fn leads(&self) -> bool {
        self.world.group.rank() == 0
    }

    /// Which samples of a batch are this rank's.
    pub(crate) fn own(&self, batch: usize) -> Range<usize> {
        Partition::balanced(batch, self.data.group.size()).range(self.data.group.rank())
    }

    /// All of a weight of which each rank of a team has a part, on the rank that leads. The others take part in it, and get
    /// nothing.
    pub(crate) fn collect<T: Number>(&self, cut: &Cut, values: &[T], size: usize) -> Option<Vec<T>> {
        // All teams have the same weights: one of them will do.
        if self.data.group.rank() != 0 {
            return None;
        }
        // Nothing but a negative zero leaves every number as it is when it is added.
        let mut whole = vec![-T::ZERO; size];
        cut.put(values, &mut whole);
        if self.team.group.size() > 1 {
            self.faults.guard(|| self.team.group.reduce(&mut whole, ReduceOp::Sum, 0));
        }
        self.leads().then_some(whole)
    }

    /// Ends everywhere where it ended with an error somewhere. All ranks call it.
    pub(crate) fn agree<R>(&self, result: Result<R>) -> Result<R, Failure> {
        let group = &self.world.group;
        let mut kinds = vec![0_i32; group.size()];
        let own = result.as_ref().err().map_or(0, |error| error.kind() as i32);
        if let Err(broken) = group.all_gather(&[own], &mut kinds) {
            // What went wrong here is rather the cause than that the others cannot be reached.
            return Err(result.err().unwrap_or(broken).into());
        }
        let Some(first) = kinds.iter().position(|kind| *kind != 0) else { return Ok(result?) };
        match result {
            Err(error) if first == group.rank() => Err(error.into()),
            _ => Err(Failure::elsewhere(first, kind_of(kinds[first]))),
        }
    }

    /// Makes the gradients of layers from `lowest` on those of the whole batch. Small ones travel together in `all`, whose
    /// memory the next batch uses again.
    pub(crate) fn sum_gradients<T: Number>(&self, network: &mut Network<T>, lowest: usize, all: &mut Vec<T>) {
        for (spread, over) in [(true, &self.world), (false, &self.data)] {
            if over.group.size() == 1 {
                continue;
            }
            all.clear();
            each_gradient(network, lowest, spread, |gradient| match gradient.len() > SMALL {
                true => over.sum(gradient),
                false => all.extend_from_slice(gradient),
            });
            over.sum(all);
            let mut rest = &all[..];
            each_gradient(network, lowest, spread, |gradient| {
                if gradient.len() > SMALL {
                    return;
                }
                let (own, others) = rest.split_at(gradient.len());
                gradient.copy_from_slice(own);
                rest = others;
            });
        }
    }
}

/// Calls `each` with the gradients that are sums over all ranks, or with the others.
fn each_gradient<T: Number>(
    network: &mut Network<T>,
    lowest: usize,
    everywhere: bool,
    mut each: impl FnMut(&mut [T]),
) {
    for layer in &mut network.layers()[lowest..] {
        let weights = layer.weights().into_iter();
        let chosen = weights.filter(|weight| (weight.spread == Spread::Everywhere) == everywhere);
        chosen.for_each(|weight| each(&mut weight.gradient));
    }
}

fn kind_of(number: i32) -> unisono::Kind {
    use unisono::Kind;
    let kinds = [Kind::Usage, Kind::Io, Kind::Unsupported];
    kinds.into_iter().find(|kind| *kind as i32 == number).unwrap_or(Kind::Internal)
}
