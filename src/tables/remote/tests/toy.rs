//! A request handler over arrays of integers; one table is lock-step, others reply immediately or never.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::tables::remote::{AdmittedRequest, RemoteRequest, RequestHandler, RequestVerb, RowList};

/// A table whose workers proceed in lock-step: the n-th get of each sees exactly the first n adds of all.
pub const LOCK_STEP: u32 = 0;
/// A table that replies immediately.
pub const FREE: u32 = 1;
/// Elements of each table on each server.
pub const LENGTH: usize = 50;

/// A request that is never ready.
pub const NEVER: RequestVerb = RequestVerb::Custom(7);
/// A request whose reply is its own payload, interpreted as single-precision numbers.
pub const ECHO: RequestVerb = RequestVerb::Custom(8);
/// A request that makes the server panic.
pub const PANIC: RequestVerb = RequestVerb::Custom(13);
/// A request that makes the server fail; the first byte of its payload selects the error.
pub const FAIL: RequestVerb = RequestVerb::Custom(14);

pub struct Toy {
    workers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    values: HashMap<u32, Vec<i64>>,
    /// For each worker, the adds and gets of the lock-step table; `u64::MAX` after it has finished.
    adds: Vec<u64>,
    gets: Vec<u64>,
}

impl Toy {
    pub fn new(workers: usize) -> Toy {
        let (adds, gets) = (vec![0; workers], vec![0; workers]);
        Toy { workers, state: Mutex::new(State { values: HashMap::new(), adds, gets }) }
    }

    fn check(&self, request: &RemoteRequest) -> Result<usize> {
        if request.table > 5 {
            let received = format!("table {}", request.table);
            return Err(Error::usage("get", "a table below 6", received, "create it first"));
        }
        let worker = request.worker as usize;
        if request.table == LOCK_STEP && worker >= self.workers {
            return Err(Error::internal("get", format!("worker {worker}")));
        }
        Ok(worker)
    }
}

pub fn bytes(values: &[i64]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

pub fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|word| i64::from_ne_bytes(*word)).collect()
}

impl RequestHandler for Toy {
    fn admit(self: Arc<Self>, _from: usize, request: RemoteRequest) -> Result<Box<dyn AdmittedRequest>> {
        Ok(Box::new(ToyRequest { toy: self, request }))
    }
}

struct ToyRequest {
    toy: Arc<Toy>,
    request: RemoteRequest,
}

impl AdmittedRequest for ToyRequest {
    fn request(&self) -> &RemoteRequest {
        &self.request
    }

    fn ready(&self) -> Result<bool> {
        let request = &self.request;
        let worker = self.toy.check(request)?;
        let state = self.toy.state.lock().unwrap();
        let least = |clocks: &[u64]| clocks.iter().copied().min().unwrap_or(0);
        Ok(match (request.table, request.verb) {
            (_, NEVER) => false,
            (LOCK_STEP, RequestVerb::Add) => least(&state.gets) >= state.gets[worker],
            (LOCK_STEP, RequestVerb::Get) => least(&state.adds) >= state.adds[worker],
            _ => true,
        })
    }

    fn run(&self) -> Result<Vec<u8>> {
        let request = &self.request;
        let worker = self.toy.check(request)?;
        if request.verb == PANIC {
            panic!("the toy panics as it was told");
        }
        if request.verb == FAIL {
            return Err(super::failures::failure(request.payload[0]));
        }
        if request.verb == ECHO {
            let RowList::List(rows) = &request.rows else { return Ok(Vec::new()) };
            return Ok(request.delta(crate::memory::DType::F32, 4 * rows[0] as usize)?.into_owned());
        }
        let mut state = self.toy.state.lock().unwrap();
        let State { values, adds, gets } = &mut *state;
        let values = values.entry(request.table).or_insert_with(|| vec![0; LENGTH]);
        let positions: Vec<usize> = match &request.rows {
            RowList::All => (0..LENGTH).collect(),
            RowList::List(rows) => rows.iter().map(|&row| row as usize).collect(),
            RowList::Keys(_) => return Err(Error::unsupported("get", "keys", "use rows")),
        };
        let in_step = request.table == LOCK_STEP;
        match request.verb {
            RequestVerb::Add => {
                adds[worker % self.toy.workers] += u64::from(in_step);
                let delta = request.delta(crate::memory::DType::I64, positions.len() * 8)?;
                for (position, delta) in positions.into_iter().zip(numbers(&delta)) {
                    values[position] += delta;
                }
                Ok(Vec::new())
            }
            RequestVerb::Get => {
                gets[worker % self.toy.workers] += u64::from(in_step);
                Ok(bytes(&positions.into_iter().map(|position| values[position]).collect::<Vec<_>>()))
            }
            RequestVerb::Finish => {
                (adds[worker], gets[worker]) = (u64::MAX, u64::MAX);
                Ok(Vec::new())
            }
            _ => Err(Error::unsupported("request", format!("{:?}", request.verb), "ask for something else")),
        }
    }
}
