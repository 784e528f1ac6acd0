//! Ranks are killed at random moments, again and again: no hang, no wrong result, nothing left behind.
//!
//! It lasts a while by default and `UNISONO_TEST_SOAK` seconds when that is set (`make soak`). A failure prints its seed;
//! `UNISONO_TEST_SEED` repeats it, as far as time can be repeated.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use unisono::launch::Job;
use unisono::{Group, Kind, ReduceOp, Result, World};

/// How many jobs make a soak when no time is given, and the time after which they are enough on a slow machine.
const JOBS: usize = 300;
const SECONDS: u64 = 60;

/// Survivors of a rank that had joined must give up in 2 seconds; the machine may be busy with other tests.
const NOTICE: Duration = Duration::from_secs(4);

/// Nobody can know that a rank died before it joined: `init` waits for its deadline (`UNISONO_TIMEOUT`), then fails.
const INIT_SECONDS: u64 = 6;
const END: Duration = Duration::from_secs(INIT_SECONDS + 4);

/// Marks a process of this test program as a rank.
const RANK: &str = "UNISONO_TEST_SOAK_RANK";

#[test]
fn soak_killed_ranks_never_hang_the_others() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    let seed = number("UNISONO_TEST_SEED").unwrap_or(time.as_nanos() as u64);
    let (jobs, seconds) =
        number("UNISONO_TEST_SOAK").map_or((JOBS, SECONDS), |seconds| (usize::MAX, seconds));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(seed | 1);
    let before = open_files();
    let mut done = 0;
    while done < jobs && Instant::now() < end {
        if let Err(problem) = job(&mut random) {
            panic!("job {done} of seed {seed}: {problem}");
        }
        done += 1;
    }
    println!("{done} jobs lost a rank, seed {seed}");
    assert!(open_files() <= before, "{before} open files have become {}", open_files());
    assert_eq!(named_memory(), [""; 0], "shared memory is left behind");
}

/// One job: starts ranks, kills one at some moment, and looks at how the others end.
fn job(random: &mut Random) -> Result<(), String> {
    let size = 2 + random.below(3);
    let job = Job::create(size).map_err(|error| error.to_string())?;
    let mut ranks: Vec<Rank> = (0..size).map(|rank| Rank::start(&job, rank)).collect();
    let victim = random.below(size);
    if random.below(8) > 0 {
        ranks[victim].await_ready()?;
    }
    std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
    ranks[victim].child.kill().map_err(|error| error.to_string())?;
    let killed = Instant::now();
    let had_joined = ranks[victim].finish(killed)?.contains("ready");
    let limit = if had_joined { NOTICE } else { END };
    for (rank, survivor) in ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
        let output = survivor.finish(killed + limit)?;
        let names_it = output.contains("PeerLost") && output.contains(&format!("rank {victim} "));
        if !names_it && had_joined {
            return Err(format!("rank {rank} of {size} did not name rank {victim}: {output}"));
        }
        if !output.contains("PeerLost") && !output.contains("Timeout") {
            return Err(format!("rank {rank} of {size} ended in another way: {output}"));
        }
    }
    Ok(())
}

/// A child process that runs [`rank_program`], killed at the latest when it is dropped.
struct Rank {
    child: Child,
    output: String,
}

impl Rank {
    fn start(job: &Job, rank: usize) -> Rank {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .args(["--exact", "rank_program", "--nocapture", "--quiet"])
            .envs(job.environment(rank))
            .env(RANK, "1")
            .env("UNISONO_TIMEOUT", INIT_SECONDS.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program can be started again");
        Rank { child, output: String::new() }
    }

    /// Reads until the rank has joined. It writes little, so nothing blocks; its own deadline ends a failing one.
    fn await_ready(&mut self) -> Result<(), String> {
        let stream = self.child.stdout.as_mut().expect("the output is a pipe");
        let mut byte = [0];
        while !self.output.contains("ready") {
            match stream.read(&mut byte) {
                Ok(1) => self.output.push(byte[0] as char),
                _ => return Err(format!("a rank ended before it was ready: {}", self.output)),
            }
        }
        Ok(())
    }

    /// Waits for the end until `limit` (at least a moment) and returns all that the rank wrote.
    fn finish(&mut self, limit: Instant) -> Result<String, String> {
        while self.child.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > limit + Duration::from_millis(500) {
                return Err(format!("process {} still runs; it wrote: {}", self.child.id(), self.output));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut rest = String::new();
        let stream = self.child.stdout.as_mut().expect("the output is a pipe");
        stream.read_to_string(&mut rest).map_err(|error| error.to_string())?;
        self.output.push_str(&rest);
        Ok(self.output.clone())
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a rank does: collectives without end, each result checked, until one fails.
#[test]
fn rank_program() {
    if std::env::var_os(RANK).is_none() {
        return;
    }
    let outcome = World::init().and_then(|world| {
        println!("ready");
        (0..).try_for_each(|step| work(world.group(), step))
    });
    let error = outcome.expect_err("a rank works until it fails");
    println!("{:?} {error}", error.kind());
    assert!(matches!(error.kind(), Kind::PeerLost | Kind::Timeout));
}

fn work(group: &Group, step: usize) -> Result<()> {
    let (rank, size) = (group.rank(), group.size());
    let elements = [1, 1000, 100_000][step % 3];
    match step % 4 {
        0 => group.barrier(),
        1 => {
            let mut values = vec![rank as f32; elements];
            group.all_reduce(&mut values, ReduceOp::Sum)?;
            assert!(values.iter().all(|&value| value == (size * (size - 1) / 2) as f32), "wrong sum");
            Ok(())
        }
        2 => {
            let mut all = vec![0; elements * size];
            group.all_gather(&vec![rank as i64; elements], &mut all)?;
            assert!(
                all.chunks(elements).enumerate().all(|(from, part)| part[0] == from as i64),
                "wrong part"
            );
            Ok(())
        }
        _ => {
            let mut value = [if rank == 0 { step as i64 } else { 0 }];
            group.broadcast(&mut value, 0)?;
            assert_eq!(value, [step as i64]);
            Ok(())
        }
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn named_memory() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("unisono")).collect()
}

/// Marsaglia's xorshift: random enough for moments.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}
