//! A user-defined table for tests: sums of numbers, which can be redistributed over another number of servers.

use unisono::tables::{Consistency, CustomTable, Requests, SavedShards, ServerHalf, Tables, WorkerHalf};
use unisono::{Error, Result};

/// Sums of numbers: number i belongs to server i mod the number of servers. If `dealt`, a checkpoint can be loaded by another
/// number of servers too.
struct Sums {
    numbers: usize,
    dealt: bool,
}

impl ServerHalf for Sums {
    fn name(&self) -> &str {
        if self.dealt { "redistributable sums" } else { "sums" }
    }

    fn bytes(&self, _server: usize, servers: usize) -> usize {
        8 * self.numbers.div_ceil(servers)
    }

    fn add(&self, memory: &mut [u8], _worker: usize, request: &[u8]) -> Result<()> {
        let sums: &mut [i64] = bytemuck::cast_slice_mut(memory);
        let delta = request.chunks_exact(8).map(bytemuck::pod_read_unaligned::<i64>);
        sums.iter_mut().zip(delta).for_each(|(sum, delta)| *sum += delta);
        Ok(())
    }

    fn get(&self, memory: &mut [u8], _worker: usize, _request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        reply.extend_from_slice(memory);
        Ok(())
    }

    fn save(&self, memory: &[u8], _server: usize, _servers: usize) -> Result<Vec<u8>> {
        match self.numbers {
            13 => Err(Error::usage("save", "luck", "13 numbers", "take another number")),
            _ => Ok(memory.to_vec()),
        }
    }

    fn load(&self, memory: &mut [u8], server: usize, servers: usize, saved: &SavedShards) -> Result<()> {
        if !self.dealt {
            return Plain.load(memory, server, servers, saved);
        }
        let sums: &mut [i64] = bytemuck::cast_slice_mut(memory);
        assert!(sums.iter().all(|&sum| sum == 0), "it is a fresh one");
        for old in 0..saved.servers() {
            let numbers = (old..self.numbers).step_by(saved.servers());
            for (number, sum) in numbers.zip(saved.shard(old)?.chunks_exact(8)) {
                if number % servers == server {
                    sums[number / servers] = bytemuck::pod_read_unaligned(sum);
                }
            }
        }
        assert!(saved.shard(saved.servers()).is_err());
        Ok(())
    }
}

/// A server half that keeps the default methods for checkpoints.
struct Plain;

impl ServerHalf for Plain {
    fn name(&self) -> &str {
        "plain"
    }

    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        0
    }

    fn add(&self, _memory: &mut [u8], _worker: usize, _request: &[u8]) -> Result<()> {
        Ok(())
    }

    fn get(&self, _memory: &mut [u8], _worker: usize, _request: &[u8], _reply: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// Distributes numbers over servers.
pub struct Dealer {
    numbers: usize,
}

impl WorkerHalf for Dealer {
    type Delta = [i64];
    type Query = ();
    type Answer = Vec<i64>;

    fn split_add(&self, delta: &[i64], servers: usize) -> Result<Requests> {
        let of = |server: usize| delta.iter().skip(server).step_by(servers);
        let bytes = |server: usize| of(server).flat_map(|number| number.to_ne_bytes()).collect();
        Ok((0..servers).map(|server| (server, bytes(server))).collect())
    }

    fn split_get(&self, _: &(), servers: usize) -> Result<Requests> {
        Ok((0..servers).map(|server| (server, Vec::new())).collect())
    }

    fn merge(&self, _: &(), replies: Requests) -> Result<Vec<i64>> {
        let servers = replies.len();
        let sum = |number: usize| {
            bytemuck::pod_read_unaligned(&replies[number % servers].1[8 * (number / servers)..][..8])
        };
        Ok((0..self.numbers).map(sum).collect())
    }
}

/// Creates a table of `numbers` sums.
pub fn sums(tables: &Tables, name: &str, numbers: usize, dealt: bool) -> CustomTable<Dealer> {
    sums_with(tables, name, numbers, dealt, Consistency::Async)
}

/// The same with another consistency.
pub fn sums_with(
    tables: &Tables,
    name: &str,
    numbers: usize,
    dealt: bool,
    consistency: Consistency,
) -> CustomTable<Dealer> {
    let half = Sums { numbers, dealt };
    CustomTable::create(tables, name, half, Dealer { numbers }, consistency).unwrap()
}
