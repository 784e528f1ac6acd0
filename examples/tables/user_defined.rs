//! A user-defined table: the most frequent words of a stream that many workers read, in constant memory.
//!
//! `cargo run --example user_defined` runs it on threads; `unisono run -n 4 -- target/debug/examples/user_defined` on
//! processes. Each shard keeps a fixed number of counters (Metwally, Agrawal and El Abbadi 2005, "space-saving"): a new word
//! takes over the smallest counter, and with it the smallest count. So no count is too small, and none is too large by more
//! than the words of the shard divided by its counters. A user-defined updater keeps the longest line of each worker.

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use unisono::tables::{
    ArrayTable, Consistency, CustomTable, Requests, Role, ServerHalf, TableOptions, Tables, UpdateContext,
    Updater, UpdaterChoice, WorkerHalf,
};
use unisono::{Error, Result, World};

/// Counters of each shard: many fewer than there are words.
const COUNTERS: usize = 64;
const VOCABULARY: u64 = 2000;
const LINES: usize = 400;

/// A word and its count, in shared memory.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Counter {
    word: u64,
    /// Zero if the counter is free.
    count: u64,
}

/// The server half, which keeps the counters.
struct Shard;

impl ServerHalf for Shard {
    fn name(&self) -> &str {
        "frequent words"
    }

    fn bytes(&self, _server: usize, _servers: usize) -> usize {
        COUNTERS * size_of::<Counter>()
    }

    /// The request is a list of words.
    fn add(&self, memory: &mut [u8], _worker: usize, request: &[u8]) -> Result<()> {
        let counters: &mut [Counter] = bytemuck::cast_slice_mut(memory);
        for word in request.chunks_exact(8).map(bytemuck::pod_read_unaligned::<u64>) {
            let known = counters.iter().position(|counter| counter.count > 0 && counter.word == word);
            let place = known.or_else(|| (0..COUNTERS).min_by_key(|&place| counters[place].count));
            let counter = &mut counters[place.expect("a shard has counters")];
            *counter = Counter { word, count: counter.count + 1 };
        }
        Ok(())
    }

    /// The request is the number of most frequent words to return.
    fn get(&self, memory: &mut [u8], _worker: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        let wanted: u64 = bytemuck::try_pod_read_unaligned(request)
            .map_err(|_| Error::usage("get", "8 bytes", format!("{}", request.len()), "ask for a number"))?;
        let mut counters: Vec<Counter> = bytemuck::cast_slice(memory).to_vec();
        counters.sort_by_key(|counter| std::cmp::Reverse(counter.count));
        counters.truncate(wanted as usize);
        reply.extend_from_slice(bytemuck::cast_slice(&counters));
        Ok(())
    }
}

/// The worker half: word w belongs to server w modulo the number of servers.
struct Reader;

impl WorkerHalf for Reader {
    type Delta = [u64];
    type Query = usize;
    type Answer = Vec<(u64, u64)>;

    fn split_add(&self, words: &[u64], servers: usize) -> Result<Requests> {
        let mut requests: Requests = (0..servers).map(|server| (server, Vec::new())).collect();
        for word in words {
            requests[*word as usize % servers].1.extend_from_slice(&word.to_ne_bytes());
        }
        Ok(requests)
    }

    fn split_get(&self, wanted: &usize, servers: usize) -> Result<Requests> {
        Ok((0..servers).map(|server| (server, (*wanted as u64).to_ne_bytes().to_vec())).collect())
    }

    fn merge(&self, wanted: &usize, replies: Requests) -> Result<Vec<(u64, u64)>> {
        let counters = replies.iter().flat_map(|(_, reply)| reply.chunks_exact(size_of::<Counter>()));
        let mut words: Vec<(u64, u64)> = counters
            .map(bytemuck::pod_read_unaligned::<Counter>)
            .map(|counter| (counter.word, counter.count))
            .collect();
        words.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        words.truncate(*wanted);
        Ok(words)
    }
}

/// An updater that keeps the maximum of all values added.
struct Largest;

impl Updater<i64> for Largest {
    fn name(&self) -> &str {
        "largest"
    }

    fn update(&self, values: &mut [i64], _: &mut [&mut [i64]], delta: &[i64], _: &UpdateContext) {
        values.iter_mut().zip(delta).for_each(|(value, delta)| *value = (*value).max(*delta));
    }
}

/// A worker's text: words are numbers, and the frequency of word w is about proportional to 1 / (w + 1).
fn lines(worker: usize) -> impl Iterator<Item = Vec<u64>> {
    let mut state = 1 + worker as u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..LINES).map(move |_| {
        let length = 1 + (uniform() * 80.0) as usize;
        (0..length).map(|_| (VOCABULARY as f64).powf(uniform()) as u64 - 1).collect()
    })
}

/// Runs one rank.
pub fn run(world: &World) -> Result<()> {
    let tables = Tables::join(world, Role::Both)?;
    let words = CustomTable::create(&tables, "words", Shard, Reader, Consistency::Async)?;
    let options =
        TableOptions { updater: UpdaterChoice::custom::<i64>(Arc::new(Largest)), ..Default::default() };
    let longest = ArrayTable::<i64>::create(&tables, tables.workers(), None, options)?;

    let worker = world.rank();
    for line in lines(worker) {
        words.add(&line)?;
        let mut lengths = vec![0; tables.workers()];
        lengths[worker] = line.len() as i64;
        longest.add(&lengths)?;
    }
    tables.barrier()?;

    // The example is small, so every rank can count the full text itself.
    let mut truth: HashMap<u64, u64> = HashMap::new();
    (0..tables.workers()).flat_map(lines).flatten().for_each(|word| *truth.entry(word).or_default() += 1);
    let total: u64 = truth.values().sum();
    let top = words.get(&5)?;
    for &(word, count) in &top {
        assert!(
            count >= truth[&word] && count <= truth[&word] + total / COUNTERS as u64,
            "word {word}: {count}"
        );
    }
    let mut first: Vec<u64> = top.iter().map(|&(word, _)| word).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2, 3, 4], "the most frequent words are found");

    let mut found = vec![0; tables.workers()];
    longest.get(&mut found)?;
    let expected =
        (0..tables.workers()).map(|worker| lines(worker).map(|line| line.len() as i64).max().unwrap());
    assert_eq!(found, expected.collect::<Vec<_>>());
    if world.rank() == 0 {
        println!("{total} words by {} workers; the most frequent: {top:?}", tables.workers());
    }
    tables.barrier()
}

#[allow(dead_code)] // the tests call `run`
fn main() -> Result<()> {
    let world = World::init()?;
    if world.size() > 1 {
        return run(&world);
    }
    let threads: Vec<_> =
        World::threads(4)?.into_iter().map(|world| std::thread::spawn(move || run(&world))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("a worker panicked"))
}
