//! The transport between hosts: MPI, loaded at run time and called through its C interface.
//!
//! | file | contents |
//! |---|---|
//! | `search`, `library` | where MPI libraries are installed; loading the preferred one |
//! | `slurm` | whether the library can start in a Slurm step |
//! | `abi`, `binding` | three ABIs as one function table; the MPI calls in use, with errors |
//! | `wire`, `transfer` | control messages; data in flight |
//! | `engine`, `control`, `cancel` | the state of all exchanges; handling of control messages; cancellation |
//! | `buffered`, `buffer_pool` | messages outside any exchange: buffered sends and receives from any source; their memory |
//! | `wait`, `identity`, `peers` | polling backoff; identity and liveness of the other ranks |
//! | `hydra` | what MPICH's launcher does when a rank has died |
//! | `leave` | the end of the use of MPI, by a deadline even if MPI blocks |
//! | `status` | asks processes on other hosts, beside MPI, whether they run and what they do |
//! | `all_reduce` | the one collective that is worth an algorithm of its own |
//!
//! **One lock instead of a progress thread.** All MPI calls are made under one lock, by whichever thread is waiting,
//! and that thread makes progress for all exchanges. A progress thread would cost two handoffs for each message,
//! several microseconds where MPI itself needs one, and a core that spins on behalf of others; the lock costs some
//! nanoseconds. The price: messages move only while some thread of this rank is inside a call.
//!
//! **No blocking MPI call.** Every operation is started and then tested, so every call ends at its deadline. That holds
//! for all_reduce too: MPI_Allreduce cannot be cancelled, and the algorithm here is faster on large messages anyway.
//! Only MPI_Init_thread and MPI_Finalize are unbounded; the latter is only called when all ranks have reached it. A call that MPI
//! itself blocks in, against its standard, cannot be ended: see `hydra` for the one that is known, and `leave`.

mod abi;
mod all_reduce;
mod binding;
mod buffer_pool;
mod buffered;
mod cancel;
mod control;
mod engine;
mod hydra;
mod identity;
mod leave;
mod library;
mod peers;
mod search;
mod slurm;
mod status;
#[cfg(test)]
mod tests;
mod transfer;
mod wait;
mod wire;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

pub use abi::Interface as MpiInterface;
pub(crate) use peers::{DescribeRank, Peers};
pub use search::{MpiLibrary, installed as mpi_libraries};
pub(crate) use wait::PollBackoff;

use crate::error::{Error, Lost, Missing, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::{
    Call, Delivery, Incoming, MatchKey, NonblockingTransport, Outgoing, Ticket, Transport,
};
use binding::MpiRuntime;
use engine::{ExchangeFailure, MpiEngine};
use identity::ProcessIdentity;
use search::MpiLauncher;
use status::{ServiceAddress, StatusListener};

/// How long to look for a lost rank of this host after MPI has failed, and for one of any host.
const LOCAL_CAUSE: Duration = Duration::from_millis(200);
const REMOTE_CAUSE: Duration = Duration::from_millis(1500);

/// Options of [`MpiTransport::init`].
pub(crate) struct MpiOptions {
    /// Rank and size according to the launcher's variables; MPI must agree.
    pub expected: Option<(usize, usize)>,
    /// How long the ranks may take to connect once MPI itself has started.
    pub timeout: Duration,
    /// Describes what a rank was last doing, for timeouts.
    pub describe: Option<DescribeRank>,
}

/// The MPI transport.
pub(crate) struct MpiTransport {
    rank: usize,
    size: usize,
    /// Whether this host has more ranks than cores.
    oversubscribed: bool,
    pub peers: Peers,
    /// Shared with the thread that leaves MPI.
    engine: Arc<Mutex<MpiEngine>>,
    /// Notified when unexpected messages have arrived.
    arrivals_changed: Condvar,
    /// The transport between the ranks of this host, if there is one. A thread that waits for MPI moves its messages too.
    local: OnceLock<Weak<dyn Transport>>,
    /// Scratch memory of finished all_reduces, reused because fresh pages are slow.
    scratch: Mutex<Vec<Vec<u8>>>,
}

impl MpiTransport {
    /// Finds, loads and initialises MPI. Collective: every rank of the job must call it.
    pub fn init(options: MpiOptions) -> Result<MpiTransport> {
        let deadline = Instant::now() + options.timeout;
        let library = library::load()?;
        // Some libraries abort the process when they detect another MPI's launcher: check before they do.
        if MpiLauncher::detect().contradicts(&library.version()) {
            let what = format!(
                "{} was not started by its own launcher",
                describe(&library.version(), &library.path)
            );
            return Err(different(what));
        }
        slurm::check(&library)?;
        let on_signal = hydra::action();
        let mpi = MpiRuntime::start(library, deadline)?;
        // Not earlier: while MPI starts, only the launcher can end a job that has lost a rank.
        hydra::outlive_lost_ranks(mpi.code_address(), on_signal);
        let (rank, size, version) = (mpi.rank, mpi.size, mpi.version());
        tracing::debug!(rank, size, %version, path = %mpi.path().display(), "started MPI");
        if let Some((launcher_rank, launcher_size)) = options.expected
            && (launcher_rank, launcher_size) != (rank, size)
        {
            let library = describe(&version, mpi.path());
            return Err(different(format!(
                "rank {launcher_rank} of {launcher_size} from the launcher, but rank {rank} of {size} from {library}"
            )));
        }
        let all = mpi.all_gather(bytemuck::bytes_of(&ProcessIdentity::own()), deadline)?;
        let identities: Vec<ProcessIdentity> =
            all.chunks_exact(size_of::<ProcessIdentity>()).map(bytemuck::pod_read_unaligned).collect();
        let peers = Peers::new(&identities, rank, options.describe);
        if peers.are_on_several_hosts() {
            let listener = StatusListener::open()
                .inspect_err(|error| tracing::debug!(%error, "other hosts cannot ask for this rank's status"))
                .ok();
            let own = StatusListener::announce(listener.as_ref());
            let all = mpi.all_gather(bytemuck::bytes_of(&own), deadline)?;
            let announced: Vec<ServiceAddress> =
                all.chunks_exact(size_of::<ServiceAddress>()).map(bytemuck::pod_read_unaligned).collect();
            peers.start_status(listener, &announced);
        }
        Ok(MpiTransport::new(mpi, peers))
    }

    fn new(mpi: MpiRuntime, peers: Peers) -> MpiTransport {
        let (rank, size) = (mpi.rank, mpi.size);
        let oversubscribed = peers.share_cpus();
        let engine = Arc::new(Mutex::new(MpiEngine::new(mpi)));
        let (arrivals_changed, local, scratch) = (Condvar::new(), OnceLock::new(), Mutex::default());
        MpiTransport { rank, size, oversubscribed, peers, engine, arrivals_changed, local, scratch }
    }

    /// Lets every wait make progress on the transport of this host too; only the first call has an effect.
    pub(crate) fn set_progress_transport(&self, local: Weak<dyn Transport>) {
        let _ = self.local.set(local);
    }

    /// Gathers every rank's `own` bytes, in rank order. Collective, for startup only: every rank makes these calls
    /// before any other.
    pub(crate) fn all_gather(&self, own: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        self.engine().mpi.all_gather(own, deadline)
    }

    /// Whether this host has more ranks than cores.
    pub(crate) fn oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// The library's version string, in one line.
    #[cfg(test)]
    fn version(&self) -> String {
        self.engine().mpi.version()
    }

    fn engine(&self) -> MutexGuard<'_, MpiEngine> {
        lock(&self.engine)
    }

    /// Makes as much progress as possible without blocking.
    fn advance(&self, engine: &mut MpiEngine, call: &Call) -> Result<()> {
        if let Some(rank) = engine.broken {
            return Err(self.broken(call, rank));
        }
        let before = engine.arrivals;
        let outcome = engine.progress();
        self.notify_sleepers(engine, before);
        outcome.map_err(|error| {
            // A rank that violated the protocol is already named.
            if engine.broken.is_some() {
                return error;
            }
            let error = self.cause(call, error);
            // MPI failed in mid-operation: none of the requests it holds can be trusted to complete.
            let dead = self.peers.all_lost().first().map(|lost| lost.rank);
            engine.broken = Some(dead.unwrap_or(self.rank));
            error
        })
    }

    fn error(&self, call: &Call, failure: ExchangeFailure) -> Error {
        match failure {
            ExchangeFailure::Mismatch(mismatch) => mismatch.error(call),
            ExchangeFailure::PeerCancelled { from, dead } => {
                // The first rank that cancelled had a reason: dead ranks are the root cause that the user needs to see.
                let mut lost = self.peers.all_lost();
                if lost.is_empty() {
                    let (rank, how) = match dead {
                        Some(rank) => (rank, format!("its process ended, as rank {from} reports")),
                        None => (from, "it cancelled this call".into()),
                    };
                    lost.push(Lost::new(rank, Some(self.peers.pid(rank)), how));
                }
                call.lost(lost)
            }
            ExchangeFailure::Mpi(error) => self.cause(call, error),
        }
    }

    /// An MPI call fails when its peer has just died: report the death rather than MPI's own error.
    fn cause(&self, call: &Call, error: Error) -> Error {
        let suspects: Vec<usize> = match call.members {
            [] => (0..self.size).collect(),
            members => members.to_vec(),
        };
        let lost = self.find_lost(&suspects);
        if lost.is_empty() { error } else { call.lost(lost) }
    }

    /// All lost ranks. Waits a moment for one: a dying process loses its memory a little before its pid disappears, and ranks on other
    /// hosts have to be asked.
    fn find_lost(&self, suspects: &[usize]) -> Vec<Lost> {
        let since = Instant::now();
        let asks = self.peers.suspect(suspects, since);
        let until = since + if asks { REMOTE_CAUSE } else { LOCAL_CAUSE };
        loop {
            let lost = self.peers.all_lost();
            if !lost.is_empty() || Instant::now() >= until {
                return lost;
            }
            std::thread::sleep(Duration::from_millis(5));
            self.peers.suspect(suspects, since);
        }
    }

    /// The error of every call after a transfer that MPI would not release.
    fn broken(&self, call: &Call, rank: usize) -> Error {
        let how = if rank == self.rank {
            "this rank cannot use MPI any more: it has shut it down, or MPI failed"
        } else {
            "a transfer with it stopped midway, so MPI cannot be used any more"
        };
        let known = self.peers.known_lost(rank);
        let lost = known.unwrap_or_else(|| Lost::new(rank, Some(self.peers.pid(rank)), how));
        call.lost(vec![lost])
    }
}

fn lock(engine: &Mutex<MpiEngine>) -> MutexGuard<'_, MpiEngine> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(version: &str, path: &std::path::Path) -> String {
    format!("{version} ({})", path.display())
}

fn different(what: String) -> Error {
    let what = format!("{what}: the library and the launcher belong to different MPIs");
    let advice =
        "start the job with the mpiexec of that library, or name the launcher's library in UNISONO_LIBMPI";
    Error::unsupported("init", what, advice)
}

impl Transport for MpiTransport {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn complete(&self, call: &Call, ticket: &Ticket) -> Result<()> {
        self.wait(call, ticket)
    }

    fn post(&self, call: &Call, to: usize, match_key: &MatchKey, bytes: Vec<u8>) -> Result<()> {
        self.post_owned(call, to, match_key, bytes)
    }

    fn receive_next(&self, call: &Call, context: u32, tag: u32, limit: Duration) -> Result<Option<Delivery>> {
        self.wait_for_next(call, context, tag, limit)
    }

    fn buffer(&self, bytes: usize) -> Vec<u8> {
        self.engine().buffers.take(bytes).unwrap_or_else(|| vec![0; bytes])
    }

    fn recycle(&self, bytes: Vec<u8>) {
        self.engine().buffers.put(bytes);
    }

    fn drain(&self, call: &Call, to: usize, bytes: usize, limit: Duration) -> Result<bool> {
        self.wait_until(call, limit, |engine| engine.unsent(to) <= bytes)
    }

    fn flush(&self, call: &Call, limit: Duration) -> Result<bool> {
        self.wait_until(call, limit, |engine| {
            engine.buffered_sends.is_empty() && engine.control_sends.is_empty()
        })
    }

    fn lost(&self, rank: usize) -> Option<Lost> {
        self.peers.lost(rank)
    }

    fn missing(&self, ranks: &[usize]) -> Vec<Missing> {
        self.peers.missing(ranks)
    }

    fn leave(&self, limit: Duration, may_have_lost_rank: bool) {
        // Those that were lost to other ranks have to be found first.
        if may_have_lost_rank && self.peers.all_lost().is_empty() {
            self.find_lost(&(0..self.size).collect::<Vec<usize>>());
        }
        self.peers.announce_leaving();
        if let Err(error) = self.shutdown(limit) {
            tracing::warn!(%error, "leaving MPI");
        }
        self.peers.stop_status();
    }

    fn all_reduce(
        &self,
        call: &Call,
        match_key: &MatchKey,
        members: &[usize],
        bytes: &mut [u8],
        kind: (DType, ReduceOp),
    ) -> Option<Result<()>> {
        Some(self.all_reduce_pipelined(call, match_key, members, bytes, kind))
    }
}

impl NonblockingTransport for MpiTransport {
    unsafe fn begin(&self, match_key: &MatchKey, sends: &[Outgoing], receives: &mut [Incoming]) -> Ticket {
        let mut engine = self.engine();
        let before = engine.arrivals;
        // SAFETY: the caller guarantees the validity of the buffers.
        let ticket = unsafe { engine.begin(match_key, sends, receives) };
        self.notify_sleepers(&engine, before);
        ticket
    }

    fn poll(&self, call: &Call, ticket: &Ticket) -> Result<bool> {
        let mut engine = self.engine();
        let outcome = self
            .advance(&mut engine, call)
            .and_then(|()| engine.exchanges.state(*ticket).map_err(|failure| self.error(call, failure)));
        match outcome {
            Ok(true) => engine.exchanges.close(*ticket),
            Ok(false) => {
                drop(engine);
                if let Some(local) = self.local.get().and_then(Weak::upgrade) {
                    local.progress();
                }
            }
            Err(_) => engine.cancel(*ticket, None),
        }
        outcome
    }

    fn progress(&self) -> bool {
        let mut engine = match self.engine.try_lock() {
            Ok(engine) => engine,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The thread inside makes progress for all; it may leave before everything has moved.
            Err(TryLockError::WouldBlock) => return true,
        };
        if engine.broken.is_some() {
            return false;
        }
        let before = engine.arrivals;
        let outcome = engine.progress();
        self.notify_sleepers(&engine, before);
        if let Err(error) = outcome {
            // The calls that depend on MPI report it.
            tracing::debug!(%error, "MPI failed in the background");
            let dead = self.peers.all_lost().first().map(|lost| lost.rank);
            engine.broken.get_or_insert(dead.unwrap_or(self.rank));
            return false;
        }
        !engine.exchanges.is_empty() || !engine.control_idle()
    }

    fn cancel(&self, ticket: Ticket) {
        let mut engine = self.engine();
        let dead = engine.awaited(ticket).into_iter().find(|&rank| self.peers.lost(rank).is_some());
        engine.cancel(ticket, dead);
    }

    fn awaited(&self, ticket: &Ticket) -> Vec<usize> {
        self.engine().awaited(*ticket)
    }
}
