//! Rounds as one step of the updater: the adds of a `bsp` round are held back until the round is complete, summed in worker
//! order, and applied as one add.
//!
//! Updaters whose adds can be applied one by one (`is_linear`: `add`, `sgd`) need none of this, unless the round's mean is
//! requested.
//!
//! `../../consistency/README.md` has the protocol.
//!
//! A complete round is applied by the rank that completes it, or by the next rank that gets, adds or saves: a rank that dies or
//! gives up in between leaves it to that one, which continues at the stripe after the last one begun. A pending add that was not
//! counted belongs to a worker that died; it is never applied.

mod pending;
mod sum;

pub(crate) use crate::tables::consistency::round_slot::RoundProgress;
pub(crate) use sum::{RoundSum, SumByKey};

use crate::error::Result;
use crate::tables::consistency::clock::AddDecision;
use crate::tables::engine::base::{Base, Turn, not_applied};
use crate::tables::engine::shard::Shard;
use crate::tables::remote::RemoteRequest;
use crate::tables::{AddOptions, Consistency};
use crate::transport::Call;
use pending::PendingAdd;

/// Whether the adds of a round are summed before they are applied.
pub(crate) fn accumulates(consistency: Consistency, is_linear: bool) -> bool {
    matches!(consistency, Consistency::Bsp { mean, .. } if mean || !is_linear)
}

/// The adds of a round, in worker order; there is at least one.
pub(crate) struct RoundAdds<'a> {
    base: &'a Base,
    offsets: Vec<usize>,
}

impl RoundAdds<'_> {
    pub fn iter(&self) -> impl Iterator<Item = Result<RemoteRequest>> + '_ {
        self.offsets.iter().map(|&offset| pending::read(&self.base.inner.endpoint, offset))
    }

    /// The divisor of the sum.
    pub fn divisor(&self) -> usize {
        match self.base.description.consistency {
            Consistency::Bsp { mean: true, .. } => self.offsets.len(),
            _ => 1,
        }
    }

    /// The options of the step: those of the first worker's add.
    pub fn options(&self) -> Result<AddOptions> {
        let first = self.iter().next().map_or(Ok(Vec::new()), |add| Ok(add?.options))?;
        match first.is_empty() {
            true => Ok(self.base.add),
            false => Ok(AddOptions::from_bytes(&first)?.or(&self.base.add)),
        }
    }
}

/// Applies a round's adds as one step.
type Step<'a> = dyn Fn(&RoundAdds, &RoundProgress) -> Result<()> + 'a;

/// Puts an add into its round; applies the round if the add completes it.
pub(crate) fn add_to_round<S: Shard>(
    shard: &S,
    call: &Call,
    worker: usize,
    turn: Turn,
    request: RemoteRequest,
) -> Result<()> {
    let (base, clock) = (shard.base(), &shard.base().clock);
    let pending_add = PendingAdd::new(base, request, clock.adds(worker))?;
    base.take_add_turn(call, worker, turn)?;
    // The slot for this add may still hold an add of a complete round.
    let entered = apply_complete_rounds(shard, call).and_then(|()| base.enter_round(call, worker));
    let (decision, guard) = entered.map_err(not_applied)?;
    if decision == AddDecision::Apply {
        pending_add.publish(clock.pending(worker, clock.adds(worker)));
    }
    clock.record_add(worker);
    drop(guard);
    // The add is counted. If the round cannot be applied now, the next get applies it or reports the error.
    if let Err(error) = apply_complete_rounds(shard, call) {
        tracing::warn!(%error, "a complete round could not be applied yet");
    }
    Ok(())
}

/// Applies the rounds that are complete but not yet applied, if the table sums the adds of a round.
pub(crate) fn apply_complete_rounds<S: Shard>(shard: &S, call: &Call) -> Result<()> {
    match shard.base().accumulates() {
        true => shard.base().apply_rounds(call, &|adds, progress| shard.step(call, adds, progress)),
        false => Ok(()),
    }
}

impl Base {
    /// Applies the rounds that are complete but not yet applied.
    fn apply_rounds(&self, call: &Call, step: &Step) -> Result<()> {
        let round = self.clock.round();
        if self.clock.is_complete() {
            let _guard = self.acquire(call, &round.lock)?;
            self.clock.close_round_and_notify();
        }
        if round.applied.count() >= self.clock.complete_rounds() {
            return Ok(());
        }
        let _guard = self.acquire(call, &round.applying)?;
        loop {
            let number = round.applied.count();
            if number >= self.clock.complete_rounds() {
                return Ok(());
            }
            let adds = RoundAdds { base: self, offsets: self.pending_adds(number) };
            if !adds.offsets.is_empty() {
                step(&adds, &round.applied.progress(number))?;
            }
            round.applied.finish(number);
            for worker in 0..self.clock.workers() {
                let slot = self.clock.pending(worker, number);
                if adds.offsets.contains(&(slot.offset() as usize)) {
                    pending::free(self, slot.clear() as usize);
                }
            }
        }
    }

    /// The heap offsets of a round's adds, in worker order.
    fn pending_adds(&self, round: u64) -> Vec<usize> {
        let counted = (0..self.clock.workers()).filter(|&worker| self.clock.adds(worker) > round);
        let offsets = counted.map(|worker| self.clock.pending(worker, round).offset() as usize);
        offsets
            .filter(|&offset| offset != 0 && pending::round(&self.inner.endpoint, offset) == round)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AddDecision, PendingAdd};
    use crate::error::Kind;
    use crate::tables::engine::call::AddCall;
    use crate::tables::remote::RemoteRequest;
    use crate::tables::shard::dense::calls::RowsAdd;
    use crate::tables::shard::dense::core::TableCore;
    use crate::tables::{
        AddOptions, Consistency, MatrixTable, Role, Rows, TableOptions, Tables, UpdaterChoice,
    };
    use crate::testing::spawn_worlds;

    const ROWS: usize = 4;
    const COLS: usize = 40_000; // one row per stripe

    fn local_request(core: &TableCore, worker: usize, delta: &[u8]) -> RemoteRequest {
        RowsAdd { rows: Rows::All, delta, options: &AddOptions::default() }.local_request(core, worker)
    }

    fn options(backup: usize) -> TableOptions {
        TableOptions {
            updater: UpdaterChoice::named("nesterov").unwrap(),
            consistency: Consistency::Bsp { backup, mean: false },
            ..TableOptions::default()
        }
    }

    /// What remains of a process killed between publishing an add and counting it, and of one killed after counting it.
    #[test]
    fn the_adds_of_the_dead_count_if_they_had_counted_them() {
        for counted in [false, true] {
            spawn_worlds(3, |world| {
                let tables = Tables::join(world, Role::Both).unwrap();
                let table = MatrixTable::<f32>::create(&tables, (2, 1), None, options(1)).unwrap();
                let core = &table.table().core;
                if world.rank() == 2 && counted {
                    table.add(&[10.0; 2]).unwrap();
                } else if world.rank() == 2 {
                    let delta = [10f32; 2];
                    let delta = bytemuck::cast_slice(&delta);
                    let request = local_request(core, 2, delta);
                    PendingAdd::new(&core.base, request, 0).unwrap().publish(core.clock.pending(2, 0));
                }
                if world.rank() == 2 {
                    core.clock.mark_dead(2);
                }
                world.group().barrier().unwrap();
                // Together with the dead worker's add, one more completes the round.
                if world.rank() == 0 || (world.rank() == 1 && !counted) {
                    let mut values = [0.0; 2];
                    table.add(&[1.0; 2]).unwrap();
                    table.get(&mut values).unwrap();
                    let wanted = -1.9 * if counted { 11.0 } else { 2.0 };
                    assert!(values.iter().all(|value: &f32| (value - wanted).abs() < 1e-4), "{values:?}");
                }
                world.group().barrier().unwrap();
            });
        }
    }

    /// The last add of a round is counted, but the round is not closed yet: a get does not miss the round.
    #[test]
    fn a_get_between_counting_and_closing_sees_the_round() {
        spawn_worlds(3, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let table = MatrixTable::<f32>::create(&tables, (2, 1), None, options(1)).unwrap();
            let core = &table.table().core;
            if world.rank() == 0 {
                core.clock.mark_dead(2);
                table.add(&[1.0; 2]).unwrap();
                let delta = [10f32; 2];
                let delta = bytemuck::cast_slice(&delta);
                let request = local_request(core, 1, delta);
                assert_eq!(core.clock.admit_add(1), AddDecision::Apply);
                PendingAdd::new(&core.base, request, 0).unwrap().publish(core.clock.pending(1, 0));
                core.clock.count_without_closing(1);
                let mut values = [0f32; 2];
                table.get(&mut values).unwrap();
                assert!(values.iter().all(|value| (value + 1.9 * 11.0).abs() < 1e-4), "{values:?}");
            }
            world.group().barrier().unwrap();
        });
    }

    /// A rank that cannot apply a round completely leaves the rest to the next one; nothing is applied twice, and the add counts.
    #[test]
    fn a_round_is_continued_where_it_stopped() {
        spawn_worlds(1, |world| {
            let tables = Tables::join(world, Role::Both).unwrap();
            let table = MatrixTable::<f32>::create(&tables, (ROWS, COLS), None, options(0)).unwrap();
            let core = &table.table().core;
            let call = core.call(&tables.group, "add");
            let held = core.storage.lock(&call, 2).unwrap();
            let hasty = table.table().with_timeout(Duration::from_millis(150));
            let mut values = vec![0f32; ROWS * COLS];
            let ones = vec![1f32; ROWS * COLS];
            hasty.add(Rows::All, bytemuck::cast_slice(&ones), &AddOptions::default()).unwrap();
            let error = hasty.get(Rows::All, bytemuck::cast_slice_mut(&mut values)).unwrap_err();
            assert_eq!(error.kind(), Kind::Timeout, "{error}");
            drop(held);
            table.get(&mut values).unwrap();
            assert!(values.iter().all(|value| *value == -1.9), "one step everywhere");
            assert!(core.inner.endpoint.find_shared(core.heap_key).is_empty(), "no add is left");
        });
    }
}
