//! The launcher's loop: listens to ranks and signals, and ends the job step by step when it must.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use unisono::launch::Job;

use super::keeper::Keeper;
use super::rank::Rank;
use super::{Audience, Cause, Ending, JOB_VARIABLE, Outcome, Plan, RankReport, Signals, Stream, processes};

/// From SIGTERM to SIGKILL.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long to look after processes that ranks left behind, at most.
const LEFTOVERS: Duration = Duration::from_secs(5);
/// How often to look whether those are gone.
const GLANCE: Duration = Duration::from_millis(10);

/// How far the ending of the job has gone.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Running,
    /// Ranks may end by themselves until then.
    Grace(Instant),
    /// Ranks were sent SIGTERM, and may clean up until then.
    Terminating(Instant),
    Killing,
}

struct Supervisor<'a> {
    plan: &'a Plan<'a>,
    audience: &'a mut dyn Audience,
    signals: &'a mut Signals,
    job: Job,
    keeper: Option<Keeper>,
    ranks: Vec<Rank>,
    start: Instant,
    phase: Phase,
    cause: Option<Cause>,
    /// Somebody has already sent the launcher a signal to pass on.
    asked: bool,
    buffer: Vec<u8>,
}

/// Starts the plan's ranks and stays until the job is over and nothing is left of it. Call it on the main thread.
pub(crate) fn launch(
    plan: &Plan,
    audience: &mut dyn Audience,
    signals: &mut Signals,
) -> unisono::Result<Outcome> {
    // A process that had children before it became this program keeps them.
    let relatives: HashSet<i32> =
        processes::descendants(&HashSet::new()).iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| unisono::Error::io("run", "adopting orphans", error, "a Linux kernel is needed"))?;
    let job = Job::create(plan.size)?;
    let mut supervisor = Supervisor {
        plan,
        audience,
        signals,
        job,
        keeper: None,
        ranks: Vec::with_capacity(plan.size),
        start: Instant::now(),
        phase: Phase::Running,
        cause: None,
        asked: false,
        buffer: vec![0; 1 << 16],
    };
    let started = supervisor.start_ranks();
    if started.is_err() {
        supervisor.kill();
    }
    while supervisor.ranks.iter().any(Rank::alive) {
        supervisor.wait(supervisor.next_deadline());
        supervisor.advance();
    }
    supervisor.end_leftovers(relatives);
    supervisor.drain();
    if let Some(keeper) = supervisor.keeper.take() {
        keeper.dismiss();
    }
    started?;
    Ok(supervisor.outcome())
}

impl Supervisor<'_> {
    fn start_ranks(&mut self) -> unisono::Result<()> {
        for rank in 0..self.plan.size {
            let own = self.job.environment(rank);
            if self.keeper.is_none() {
                let marker = own.iter().find(|(name, _)| name == JOB_VARIABLE);
                let marker = marker.map(|(name, value)| format!("{name}={value}")).unwrap_or_default();
                let keeper = Keeper::start(self.plan.this_program, &marker);
                self.keeper = Some(keeper.map_err(|error| {
                    let what = format!("starting this program again ({:?})", self.plan.this_program);
                    unisono::Error::io("run", what, error, "was it moved or removed meanwhile?")
                })?);
            }
            let own = own.into_iter().map(|(name, value)| (name.into(), value.into()));
            let environment: Vec<_> = self.plan.environment.iter().cloned().chain(own).collect();
            let started = Rank::start(&self.plan.program, &environment).map_err(|error| {
                let what = format!("starting rank {rank} ({:?})", self.plan.program[0]);
                unisono::Error::io("run", what, error, "check the program and the limits of this machine")
            })?;
            if let Some(keeper) = &mut self.keeper {
                keeper.group(started.pid);
            }
            self.ranks.push(started);
        }
        Ok(())
    }

    /// Waits for anything to happen, and deals with it.
    fn wait(&mut self, until: Option<Instant>) {
        let mut sources: Vec<Option<(usize, Stream)>> = Vec::new();
        let mut polled = Vec::new();
        for descriptor in self.signals.descriptors().chain(self.audience.news()) {
            sources.push(None);
            polled.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        if self.audience.has_room() {
            for (number, rank) in self.ranks.iter().enumerate() {
                for (stream, descriptor) in rank.open_pipes() {
                    sources.push(Some((number, stream)));
                    polled.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
                }
            }
        }
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        let rest = rest.map(|rest| Timespec {
            tv_sec: i64::try_from(rest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(rest.subsec_nanos()),
        });
        // An error is an interruption by a signal, which waits in its socket.
        let _ = poll(&mut polled, rest.as_ref());
        let ready: Vec<_> = polled.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        drop(polled);
        for (source, _) in sources.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            if let Some((rank, stream)) = source {
                self.read(rank, stream);
            }
        }
        self.react();
    }

    /// Reads once from a pipe, so that no rank can hold up the others; tells whether there was anything.
    fn read(&mut self, rank: usize, stream: Stream) -> bool {
        match self.ranks[rank].read(stream, &mut self.buffer) {
            Some(0) => self.audience.end(rank, stream),
            Some(count) => self.audience.hear(rank, stream, &self.buffer[..count]),
            None => return false,
        }
        true
    }

    /// Deals with signals, ended children and an audience that left.
    fn react(&mut self) {
        for signal in self.signals.take() {
            if signal == Signal::CHILD {
                continue;
            }
            if self.asked {
                self.kill();
            } else {
                self.asked = true;
                self.stop(Cause::Signal(signal));
                self.tell(signal);
            }
        }
        self.reap();
        if self.audience.is_gone() && self.cause.is_none() {
            self.stop(Cause::OutputGone);
            self.terminate();
        }
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(rank) = self.ranks.iter().position(|rank| rank.pid == pid && rank.alive()) {
                ended.push((rank, Ending::of(status)));
            }
        }
        // Of ranks found at the same moment, one that was killed is rather the cause than one that gave up.
        ended.sort_by_key(|&(rank, ending)| (matches!(ending, Ending::Status(_)), rank));
        let now = Instant::now();
        for (number, ending) in ended {
            let pid = self.ranks[number].pid;
            self.ranks[number].ended = Some((ending, now - self.start));
            if let Some(keeper) = &mut self.keeper {
                keeper.ended(pid);
            }
            if ending.failed() && self.cause.is_none() {
                self.stop(Cause::Rank(number));
            }
            if self.phase == Phase::Running && self.cause.is_some() {
                self.phase = Phase::Grace(now + self.plan.grace);
            }
        }
    }

    /// The job begins to end: remembers why, and what everybody was doing.
    fn stop(&mut self, cause: Cause) {
        if self.cause.is_none() {
            for (number, rank) in self.ranks.iter_mut().enumerate().filter(|(_, rank)| rank.alive()) {
                rank.activity = Some(self.job.activity(number));
            }
            self.cause = Some(cause);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => self.plan.timeout.map(|timeout| self.start + timeout),
            Phase::Grace(until) | Phase::Terminating(until) => Some(until),
            Phase::Killing => None,
        }
    }

    /// Takes the next step if its time has come.
    fn advance(&mut self) {
        if self.next_deadline().is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        match self.phase {
            Phase::Running => {
                self.stop(Cause::Timeout);
                self.terminate();
            }
            Phase::Grace(_) => self.terminate(),
            Phase::Terminating(_) | Phase::Killing => self.kill(),
        }
    }

    fn terminate(&mut self) {
        self.tell(Signal::TERM);
        // A stopped process gets SIGTERM only when it goes on; this does not count as telling it something.
        for rank in self.ranks.iter().filter(|rank| rank.alive()) {
            let _ = rustix::process::kill_process_group(rank.pid, Signal::CONT);
        }
        self.phase = Phase::Terminating(Instant::now() + LAST_WORDS);
    }

    fn kill(&mut self) {
        self.tell(Signal::KILL);
        self.phase = Phase::Killing;
    }

    fn tell(&mut self, signal: Signal) {
        self.ranks.iter_mut().for_each(|rank| rank.tell(signal));
    }

    /// Ends what ranks have started and left. Orphans become the launcher's own children, so their numbers stay theirs
    /// until they are waited for.
    fn end_leftovers(&mut self, relatives: HashSet<i32>) {
        let mut spared = relatives;
        spared.extend(self.keeper.as_ref().map(|keeper| keeper.pid().as_raw_nonzero().get()));
        let start = Instant::now();
        let mut asked: HashSet<Pid> = HashSet::new();
        while start.elapsed() < LEFTOVERS {
            let left = processes::descendants(&spared);
            if left.is_empty() {
                break;
            }
            let patient = self.phase != Phase::Killing && start.elapsed() < LAST_WORDS;
            for pid in left {
                if !patient {
                    let _ = kill_process(pid, Signal::KILL);
                } else if asked.insert(pid) {
                    let _ = kill_process(pid, Signal::TERM);
                    let _ = kill_process(pid, Signal::CONT);
                }
            }
            self.wait(Some(Instant::now() + GLANCE));
        }
    }

    /// Reads what is left in the pipes, without waiting for pipes that an escaped process may hold open.
    fn drain(&mut self) {
        loop {
            while !self.audience.has_room() && self.phase != Phase::Killing {
                self.wait(None);
            }
            let open: Vec<(usize, Stream)> = (0..self.ranks.len())
                .flat_map(|rank| self.ranks[rank].open_pipes().map(move |(stream, _)| (rank, stream)))
                .collect();
            let mut heard = false;
            for (rank, stream) in open {
                heard |= self.read(rank, stream);
            }
            if !heard {
                break;
            }
        }
        for (number, rank) in self.ranks.iter().enumerate() {
            rank.open_pipes().for_each(|(stream, _)| self.audience.end(number, stream));
        }
    }

    fn outcome(self) -> Outcome {
        let report = |rank: Rank| {
            let (ending, after) = rank.ended?;
            let pid = rank.pid.as_raw_nonzero().get();
            Some(RankReport { pid, ending, after, told: rank.told, activity: rank.activity })
        };
        Outcome { cause: self.cause, ranks: self.ranks.into_iter().filter_map(report).collect() }
    }
}
