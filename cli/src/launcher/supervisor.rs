//! The launcher's event loop: handles rank output, signals and exits, and ends the job in escalating steps when it must.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitOptions, wait};
use unisono::launch::Job;

use super::cores::CoreBinding;
use super::mps::Mps;
use super::rank::RankProcess;
use super::reaper::Reaper;
use super::torch_environment::TorchEnvironment;
use super::{
    Cause, JOB_VARIABLE, JobSpec, LaunchOutcome, OutputStream, RankOutput, Signals, Termination, processes,
};

/// Time from SIGTERM to SIGKILL.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(1);

/// How far the shutdown of the job has progressed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ShutdownPhase {
    Running,
    /// Ranks may exit by themselves until then.
    Grace(Instant),
    /// Ranks received SIGTERM and may clean up until then.
    Terminating(Instant),
    Killing,
}

pub(super) struct Supervisor<'a> {
    pub(super) spec: &'a JobSpec<'a>,
    pub(super) output: &'a mut dyn RankOutput,
    signals: &'a mut Signals,
    pub(super) job: Job,
    torch: TorchEnvironment,
    binding: Option<CoreBinding>,
    pub(super) reaper: Option<Reaper>,
    pub(super) mps: Option<Mps>,
    pub(super) ranks: Vec<RankProcess>,
    pub(super) start: Instant,
    pub(super) phase: ShutdownPhase,
    pub(super) cause: Option<Cause>,
    /// Restarts left, for all ranks together.
    pub(super) restarts_left: usize,
    /// Whether the launcher has already forwarded a signal.
    signalled: bool,
    buffer: Vec<u8>,
}

/// Runs the ranks of a job until it is over and none of its processes is left. Call it on the main thread.
pub(crate) fn launch(
    spec: &JobSpec,
    output: &mut dyn RankOutput,
    signals: &mut Signals,
) -> unisono::Result<LaunchOutcome> {
    // A process may have had children before it became this program (exec); they are not terminated.
    let preexisting: HashSet<i32> =
        processes::descendants(&HashSet::new()).iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| unisono::Error::io("run", "adopting orphans", error, "a Linux kernel is needed"))?;
    let binding =
        spec.bind.then(|| CoreBinding::new(spec.size)).transpose().map_err(|error| {
            unisono::Error::io("run", "binding ranks to cores", error, "run without --bind")
        })?;
    let job = Job::create(spec.size)?;
    let mut supervisor = Supervisor {
        spec,
        output,
        signals,
        job,
        torch: TorchEnvironment::new(),
        binding,
        reaper: None,
        mps: None,
        ranks: Vec::with_capacity(spec.size),
        start: Instant::now(),
        phase: ShutdownPhase::Running,
        cause: None,
        restarts_left: spec.restarts,
        signalled: false,
        buffer: vec![0; 1 << 16],
    };
    let started = supervisor.start_ranks();
    if started.is_err() {
        supervisor.kill();
    }
    while supervisor.ranks.iter().any(RankProcess::alive) {
        supervisor.wait(supervisor.next_deadline());
        supervisor.advance();
    }
    supervisor.terminate_orphans(&preexisting);
    if supervisor.mps.is_some() {
        supervisor.end_mps();
        // If its daemon was killed, a server is an orphan.
        supervisor.terminate_orphans(&preexisting);
    }
    supervisor.drain();
    if let Some(reaper) = supervisor.reaper.take() {
        reaper.dismiss();
    }
    started?;
    Ok(supervisor.outcome())
}

impl Supervisor<'_> {
    fn start_ranks(&mut self) -> unisono::Result<()> {
        self.start_mps()?;
        if self.cause.is_some() {
            return Ok(());
        }
        if self.spec.restarts > 0 {
            self.announce_restarts();
        }
        for rank in 0..self.spec.size {
            let started = self.start_rank(rank)?;
            self.ranks.push(started);
        }
        Ok(())
    }

    pub(super) fn start_rank(&mut self, rank: usize) -> unisono::Result<RankProcess> {
        self.start_reaper()?;
        let torch = self.torch.variables(rank, self.spec.size).into_iter();
        let torch = torch.map(|(name, value)| (name.into(), value.into()));
        let own = self.job.environment(rank).into_iter().map(|(name, value)| (name.into(), value.into()));
        let mps = self.mps.iter().flat_map(Mps::variables);
        // Later ones replace earlier ones: a user may set PyTorch's variables, but not those of the job.
        let environment: Vec<_> =
            torch.chain(self.spec.environment.iter().cloned()).chain(mps).chain(own).collect();
        let start = || RankProcess::start(&self.spec.program, &environment);
        let started = match &self.binding {
            Some(binding) => binding.apply(rank, start),
            None => start(),
        };
        let started = started.map_err(|error| {
            let what = format!("starting rank {rank} ({:?})", self.spec.program[0]);
            unisono::Error::io("run", what, error, "check the program and the limits of this machine")
        })?;
        if let Some(reaper) = &mut self.reaper {
            reaper.watch_group(started.pid);
        }
        Ok(started)
    }

    /// The job's value of [`JOB_VARIABLE`], which every process of the job has in its environment.
    pub(super) fn job_name(&self) -> String {
        let own = self.job.environment(0);
        own.into_iter().find(|(name, _)| name == JOB_VARIABLE).map(|(_, value)| value).unwrap_or_default()
    }

    /// Starts the reaper, if it is not running.
    pub(super) fn start_reaper(&mut self) -> unisono::Result<()> {
        if self.reaper.is_none() {
            let marker = format!("{JOB_VARIABLE}={}", self.job_name());
            let reaper = Reaper::start(self.spec.this_program, &marker);
            self.reaper = Some(reaper.map_err(|error| {
                let what = format!("starting this program again ({:?})", self.spec.this_program);
                unisono::Error::io("run", what, error, "was it moved or removed meanwhile?")
            })?);
        }
        Ok(())
    }

    /// Waits for the next event, and handles it.
    pub(super) fn wait(&mut self, until: Option<Instant>) {
        let mut sources: Vec<Option<(usize, OutputStream)>> = Vec::new();
        let mut polled = Vec::new();
        for descriptor in self.signals.descriptors().chain(self.output.wakeup_fd()) {
            sources.push(None);
            polled.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        }
        if self.output.has_room() {
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
        // An error means that a signal interrupted the call; its byte waits in the socket.
        let _ = poll(&mut polled, rest.as_ref());
        let ready: Vec<_> = polled.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
        drop(polled);
        for (source, _) in sources.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            if let Some((rank, stream)) = source {
                self.read(rank, stream);
            }
        }
        self.handle_events();
    }

    /// Reads once from a pipe, so that no rank can block the others; returns whether the pipe had data or was closed.
    pub(super) fn read(&mut self, rank: usize, stream: OutputStream) -> bool {
        match self.ranks[rank].read(stream, &mut self.buffer) {
            Some(0) => self.output.end(rank, stream),
            Some(count) => self.output.write(rank, stream, &self.buffer[..count]),
            None => return false,
        }
        true
    }

    /// Handles signals, exited children and a broken output.
    fn handle_events(&mut self) {
        for signal in self.signals.take() {
            if signal == Signal::CHILD {
                continue;
            }
            if self.signalled {
                self.kill();
            } else {
                self.signalled = true;
                self.stop(Cause::Signal(signal));
                self.signal_ranks(signal);
            }
        }
        self.reap();
        if let (Some(error), None) = (self.output.failure(), self.cause) {
            self.stop(Cause::Output(error));
            self.terminate();
        }
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(rank) = self.ranks.iter().position(|rank| rank.pid == pid && rank.alive()) {
                ended.push((rank, Termination::of(status)));
            } else {
                self.record_mps_exit(pid, Termination::of(status));
            }
        }
        // If several ranks exited since the last check, one killed by a signal is more likely the cause than one that exited.
        ended.sort_by_key(|&(rank, termination)| (matches!(termination, Termination::Status(_)), rank));
        let now = Instant::now();
        for (number, termination) in ended {
            let pid = self.ranks[number].pid;
            self.ranks[number].ended = Some((termination, now - self.start));
            if let Some(reaper) = &mut self.reaper {
                reaper.forget_group(pid);
            }
            if termination.failed() && self.cause.is_none() && self.restart(number, termination) {
                continue;
            }
            match termination.failed() {
                true => self.job.rank_ended(number),
                false => self.job.rank_succeeded(number),
            }
            if termination.failed() && self.cause.is_none() {
                self.stop(Cause::Rank(number));
            }
            if self.phase == ShutdownPhase::Running && self.cause.is_some() {
                self.phase = ShutdownPhase::Grace(now + self.spec.grace);
            }
        }
    }

    /// Begins the shutdown: records the cause, and what each rank was doing.
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
            ShutdownPhase::Running => self.spec.timeout.map(|timeout| self.start + timeout),
            ShutdownPhase::Grace(until) | ShutdownPhase::Terminating(until) => Some(until),
            ShutdownPhase::Killing => None,
        }
    }

    /// Takes the next step of the shutdown if its deadline has passed.
    pub(super) fn advance(&mut self) {
        if self.next_deadline().is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        match self.phase {
            ShutdownPhase::Running => {
                self.stop(Cause::Timeout);
                self.terminate();
            }
            ShutdownPhase::Grace(_) => self.terminate(),
            ShutdownPhase::Terminating(_) | ShutdownPhase::Killing => self.kill(),
        }
    }

    fn terminate(&mut self) {
        self.signal_ranks(Signal::TERM);
        // A stopped process receives SIGTERM only after SIGCONT, which is not recorded as the last signal.
        for rank in self.ranks.iter().filter(|rank| rank.alive()) {
            let _ = rustix::process::kill_process_group(rank.pid, Signal::CONT);
        }
        self.phase = ShutdownPhase::Terminating(Instant::now() + TERM_GRACE);
    }

    fn kill(&mut self) {
        self.signal_ranks(Signal::KILL);
        self.phase = ShutdownPhase::Killing;
    }

    fn signal_ranks(&mut self, signal: Signal) {
        self.ranks.iter_mut().for_each(|rank| rank.send_signal(signal));
    }
}
