//! Starts ranks that run one scenario of this test program, and supervises them with a deadline.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use unisono::tables::ArrayTable;
use unisono::{Kind, World};

/// The environment variable that selects a rank's scenario.
pub const SCENARIO: &str = "UNISONO_TEST_SCENARIO";

/// No scenario takes longer than this, on the slowest machine.
pub const LIMIT: Duration = Duration::from_secs(180);

/// A job of real processes.
pub struct Job {
    ranks: Vec<Child>,
    scenario: String,
    environment: Vec<(String, String)>,
    pub memory: unisono::launch::Job,
}

/// How a rank exited.
pub struct Ending {
    pub status: ExitStatus,
    pub output: String,
}

impl Job {
    pub fn start(size: usize, scenario: &str) -> Job {
        Job::start_with(size, scenario, &[])
    }

    pub fn start_with(size: usize, scenario: &str, environment: &[(&str, &str)]) -> Job {
        Job::start_restartable(size, scenario, environment, 0)
    }

    /// A job whose ranks may each be restarted `restarts` times.
    pub fn start_restartable(
        size: usize,
        scenario: &str,
        environment: &[(&str, &str)],
        restarts: usize,
    ) -> Job {
        let memory = unisono::launch::Job::create(size).unwrap();
        let environment =
            environment.iter().map(|&(name, value)| (name.to_string(), value.to_string())).collect();
        let mut job = Job { ranks: Vec::new(), scenario: scenario.into(), environment, memory };
        if restarts > 0 {
            (0..size).for_each(|rank| job.memory.allow_restarts(rank, restarts));
        }
        for rank in 0..size {
            let started = job.process_of(rank);
            job.ranks.push(started);
        }
        job
    }

    /// Starts one more process that claims to be this rank.
    pub fn process_of(&self, rank: usize) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "rank", "--nocapture", "--test-threads=1"])
            .env(SCENARIO, &self.scenario)
            .envs(self.memory.environment(rank))
            .envs(self.environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Kills a rank without reporting it as a launcher would.
    pub fn kill_silently(&mut self, rank: usize) {
        self.ranks[rank].kill().unwrap();
        self.ranks[rank].wait().unwrap();
    }

    /// Restarts a rank that was killed; it may be restarted `more` more times.
    pub fn restart(&mut self, rank: usize, more: usize) {
        self.memory.restart(rank).unwrap();
        self.memory.allow_restarts(rank, more);
        self.ranks[rank] = self.process_of(rank);
    }

    pub fn pid(&self, rank: usize) -> u32 {
        self.ranks[rank].id()
    }

    pub fn signal(&self, rank: usize, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid(rank) as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills a rank, and reports it as a launcher would.
    pub fn kill(&mut self, rank: usize) {
        self.kill_silently(rank);
        self.memory.rank_ended(rank);
    }

    /// Waits until a rank has printed `text` to its standard error; returns its output so far.
    pub fn wait_for_output(&mut self, rank: usize, text: &str) -> String {
        let mut seen = String::new();
        let stderr = self.ranks[rank].stderr.as_mut().unwrap();
        let mut byte = [0];
        while !seen.contains(text) {
            assert_eq!(
                stderr.read(&mut byte).unwrap(),
                1,
                "rank {rank} ended before it printed {text:?}: {seen}"
            );
            seen.push(byte[0] as char);
        }
        seen
    }

    /// Waits for a rank and returns how it exited.
    pub fn end_of(&mut self, rank: usize) -> Ending {
        let began = Instant::now();
        let (size, memory) = (self.ranks.len(), &self.memory);
        let doing = || (0..size).map(|rank| memory.activity(rank)).collect::<Vec<_>>();
        let child = &mut self.ranks[rank];
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < LIMIT, "rank {rank} did not end: {:#?}", doing());
            thread::sleep(Duration::from_millis(2));
        };
        let mut output = String::new();
        for stream in [&mut child.stdout.take().unwrap() as &mut dyn Read, &mut child.stderr.take().unwrap()]
        {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            output.push_str(&String::from_utf8_lossy(&bytes));
        }
        Ending { status, output }
    }

    pub fn all_succeed(mut self) {
        for rank in 0..self.ranks.len() {
            let ending = self.end_of(rank);
            assert!(ending.status.success(), "rank {rank} failed: {}", ending.output);
        }
    }
}

/// Waits until the last rank has been killed and the others have counted themselves in the last element of `counts`, which
/// follows one element for each rank; returns the counts.
pub fn counted_by_survivors(world: &World, counts: &ArrayTable<i64>) -> Vec<i64> {
    let lost = world.group().barrier().unwrap_err();
    assert_eq!(lost.kind(), Kind::PeerLost, "{lost}");
    let mut counted = vec![0; world.size() + 1];
    let began = Instant::now();
    while counted[world.size()] < world.size() as i64 - 1 {
        assert!(began.elapsed() < LIMIT, "the others did not come: {counted:?}");
        thread::sleep(Duration::from_millis(5));
        counts.get(&mut counted).unwrap();
    }
    counted
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}
