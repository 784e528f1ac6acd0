//! A worker's own copy of a table, for model averaging: gets and adds are local until a tick averages all copies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::memory::{DType, ReduceOp};
use crate::tables::updater::{UpdateContext, UpdateRule};
use crate::tables::{AddOptions, Rows};
use crate::world::Group;

/// The copy and its state, in 8-byte words so that every element type is aligned.
pub(crate) struct Replica {
    memory: Mutex<ReplicaState>,
    rule: Arc<dyn UpdateRule>,
    dtype: DType,
    row_bytes: usize,
    state_row_bytes: usize,
}

struct ReplicaState {
    values: Vec<u64>,
    planes: Vec<Vec<u64>>,
    steps: Vec<u64>,
}

impl Replica {
    pub fn new(
        rule: Arc<dyn UpdateRule>,
        dtype: DType,
        rows: usize,
        row_bytes: usize,
        state_row_bytes: usize,
    ) -> Replica {
        let words = |bytes: usize| vec![0; bytes.div_ceil(8)];
        let planes = rule.shared_planes() + rule.worker_planes();
        let memory = ReplicaState {
            values: words(rows * row_bytes),
            planes: (0..planes).map(|_| words(rows * state_row_bytes)).collect(),
            steps: vec![0; if planes > 0 { rows } else { 0 }],
        };
        Replica { memory: Mutex::new(memory), rule, dtype, row_bytes, state_row_bytes }
    }

    fn lock(&self) -> MutexGuard<'_, ReplicaState> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Overwrites values, from a byte offset on.
    pub fn set_bytes(&self, start: usize, values: &[u8]) {
        let mut memory = self.lock();
        bytemuck::cast_slice_mut::<u64, u8>(&mut memory.values)[start..][..values.len()]
            .copy_from_slice(values);
    }

    pub fn get(&self, rows: Rows, out: &mut [u8]) {
        let memory = self.lock();
        let values: &[u8] = bytemuck::cast_slice(&memory.values);
        match rows {
            Rows::All => out.copy_from_slice(&values[..out.len()]),
            Rows::List(list) => {
                for (&row, out) in list.iter().zip(out.chunks_exact_mut(self.row_bytes)) {
                    out.copy_from_slice(&values[row as usize * self.row_bytes..][..self.row_bytes]);
                }
            }
        }
    }

    pub fn add(&self, rows: Rows, delta: &[u8], options: &AddOptions) {
        let mut memory = self.lock();
        let deltas = delta.chunks_exact(self.row_bytes).enumerate();
        for (index, delta) in deltas {
            let row = match rows {
                Rows::All => index,
                Rows::List(list) => list[index] as usize,
            };
            self.add_row(&mut memory, row, delta, options);
        }
    }

    fn add_row(&self, memory: &mut ReplicaState, row: usize, delta: &[u8], options: &AddOptions) {
        let ReplicaState { values, planes, steps } = memory;
        let step = steps.get_mut(row).map_or(0, |step| {
            *step += 1;
            *step
        });
        let values =
            &mut bytemuck::cast_slice_mut::<u64, u8>(values)[row * self.row_bytes..][..self.row_bytes];
        let mut state: Vec<&mut [u8]> = planes
            .iter_mut()
            .map(|plane| {
                let bytes = bytemuck::cast_slice_mut::<u64, u8>(plane);
                &mut bytes[row * self.state_row_bytes..][..self.state_row_bytes]
            })
            .collect();
        self.rule.update(values, &mut state, delta, &UpdateContext { worker: 0, step, options });
    }

    /// Replaces the copies of all members by their average. Collective.
    pub fn average(&self, members: &Group, bytes: usize) -> Result<()> {
        let mut memory = self.lock();
        let values = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut memory.values)[..bytes];
        members.raw().all_reduce(values, self.dtype, ReduceOp::Avg)
    }
}
