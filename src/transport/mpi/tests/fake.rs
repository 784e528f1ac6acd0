//! A fake MPI without processes: the test decides what arrives, and observes which memory the engine lends.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::time::{Duration, Instant};

use libloading::os::unix::Library;

use crate::transport::mpi::abi::{Interface, MpiConstants, MpiFunctions, MpiHandle, MpiStatus};
use crate::transport::mpi::binding::MpiRuntime;
use crate::transport::mpi::library::LoadedMpi;
use crate::transport::mpi::wire::CONTROL_TAG;

/// The rank that the tests simulate, and the number of ranks.
pub const RANK: usize = 0;
pub const SIZE: usize = 3;

/// Positions of the fields in a status. The first two are private to the library; MPICH's headers define where the
/// source is.
const COUNT: usize = 0;
const CANCELLED: usize = 1;
const SOURCE: usize = 2;
const NO_SUCH_REQUEST: c_int = 19;
const TRUNCATED: c_int = 15;
/// MPICH's value of MPI_ANY_SOURCE.
const ANY_SOURCE: c_int = -2;

enum Operation {
    /// Complete when tested.
    Immediate,
    Receive {
        memory: Range<usize>,
        from: c_int,
        tag: c_int,
        cancelled: bool,
    },
}

/// A message in flight to the engine.
pub enum Arriving {
    ControlMessage(Vec<u8>),
    /// A chunk of a given length, with arbitrary content.
    Chunk {
        tag: u16,
        bytes: usize,
    },
}

#[derive(Default)]
struct Network {
    /// What MPI duplicates its world to.
    communicator: MpiHandle,
    last: MpiHandle,
    open: HashMap<MpiHandle, Operation>,
    arriving: VecDeque<(usize, Arriving)>,
    /// Memory from which chunks may be sent.
    readable: Vec<Range<usize>>,
    /// Memory into which chunks were received, and the number of bytes.
    received: Vec<(usize, usize)>,
}

thread_local! {
    static NETWORK: RefCell<Network> = RefCell::default();
}

fn with<R>(act: impl FnOnce(&mut Network) -> R) -> R {
    NETWORK.with_borrow_mut(act)
}

/// The communicator in which calls that look for messages never return.
const BLOCKING: MpiHandle = 2;

/// As [`start`], but MPI blocks once it has started.
pub fn start_blocking() -> MpiRuntime {
    start_with(BLOCKING)
}

/// Resets the network, with nothing in flight.
pub fn start() -> MpiRuntime {
    start_with(1)
}

fn start_with(communicator: MpiHandle) -> MpiRuntime {
    with(|network| *network = Network { communicator, ..Network::default() });
    let library = Library::this();
    let constants = MpiConstants::of(Interface::Mpich, &library).expect("they are constants");
    let functions = MpiFunctions {
        constants,
        get_library_version,
        initialized: no,
        finalized: no,
        init_thread,
        query_thread: no,
        finalize,
        error_string,
        comm_rank,
        comm_size,
        comm_set_errhandler,
        comm_idup,
        comm_free,
        iallgather,
        ibarrier,
        isend,
        irecv,
        improbe,
        imrecv,
        test,
        test_cancelled,
        get_count,
        cancel,
    };
    let loaded = LoadedMpi { path: "fake".into(), interface: Interface::Mpich, functions };
    MpiRuntime::start(loaded, Instant::now() + Duration::from_secs(60)).expect("it cannot fail")
}

pub fn arrive(from: usize, message: Arriving) {
    with(|network| network.arriving.push_back((from, message)));
}

/// Allows chunks to be sent from this memory.
pub fn allow(memory: &[u8]) {
    with(|network| network.readable.push(range(memory.as_ptr(), memory.len())));
}

/// The memory of the posted chunk receives.
pub fn lent() -> Vec<Range<usize>> {
    let chunk = |operation: &Operation| match operation {
        Operation::Receive { memory, tag, .. } if *tag != c_int::from(CONTROL_TAG) => Some(memory.clone()),
        _ => None,
    };
    with(|network| network.open.values().filter_map(chunk).collect())
}

/// The number of bytes received into this memory.
pub fn received(memory: &[u8]) -> usize {
    let memory = range(memory.as_ptr(), memory.len());
    with(|network| {
        let here = network.received.iter().filter(|(start, _)| memory.contains(start));
        here.map(|(_, bytes)| bytes).sum()
    })
}

pub fn range(start: *const u8, bytes: usize) -> Range<usize> {
    start as usize..start as usize + bytes
}

fn begin(operation: Operation) -> MpiHandle {
    with(|network| {
        network.last += 1;
        network.open.insert(network.last, operation);
        network.last
    })
}

extern "C" fn get_library_version(_text: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: the caller passes a live integer.
    unsafe { *length = 0 };
    0
}

extern "C" fn no(answer: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *answer = 0 };
    0
}

extern "C" fn init_thread(
    _count: *mut c_int,
    _arguments: *mut *mut *mut c_char,
    wanted: c_int,
    level: *mut c_int,
) -> c_int {
    // SAFETY: as above.
    unsafe { *level = wanted };
    0
}

extern "C" fn finalize() -> c_int {
    0
}

extern "C" fn error_string(_code: c_int, _text: *mut c_char, length: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *length = 0 };
    0
}

extern "C" fn comm_rank(_communicator: MpiHandle, rank: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *rank = RANK as c_int };
    0
}

extern "C" fn comm_size(_communicator: MpiHandle, size: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *size = SIZE as c_int };
    0
}

extern "C" fn comm_set_errhandler(_communicator: MpiHandle, _handler: MpiHandle) -> c_int {
    0
}

extern "C" fn comm_idup(_old: MpiHandle, new: *mut MpiHandle, request: *mut MpiHandle) -> c_int {
    // SAFETY: the caller passes live handles.
    unsafe { (*new, *request) = (with(|network| network.communicator), begin(Operation::Immediate)) };
    0
}

extern "C" fn comm_free(_communicator: *mut MpiHandle) -> c_int {
    0
}

extern "C" fn iallgather(
    _own: *const c_void,
    _own_count: c_int,
    _own_type: MpiHandle,
    _all: *mut c_void,
    _all_count: c_int,
    _all_type: MpiHandle,
    _communicator: MpiHandle,
    request: *mut MpiHandle,
) -> c_int {
    // SAFETY: the caller passes a live handle.
    unsafe { *request = begin(Operation::Immediate) };
    0
}

extern "C" fn ibarrier(_communicator: MpiHandle, request: *mut MpiHandle) -> c_int {
    // SAFETY: as above.
    unsafe { *request = begin(Operation::Immediate) };
    0
}

extern "C" fn isend(
    start: *const c_void,
    count: c_int,
    _type: MpiHandle,
    to: c_int,
    tag: c_int,
    _communicator: MpiHandle,
    request: *mut MpiHandle,
) -> c_int {
    let memory = range(start.cast(), count as usize);
    assert!((0..SIZE as c_int).contains(&to) && to != RANK as c_int, "a message to rank {to}");
    let is_control = tag == c_int::from(CONTROL_TAG);
    let inside = |allowed: &Range<usize>| allowed.start <= memory.start && memory.end <= allowed.end;
    assert!(is_control || with(|network| network.readable.iter().any(inside)), "memory of others is sent");
    // SAFETY: as above.
    unsafe { *request = begin(Operation::Immediate) };
    0
}

extern "C" fn irecv(
    start: *mut c_void,
    count: c_int,
    _type: MpiHandle,
    from: c_int,
    tag: c_int,
    _communicator: MpiHandle,
    request: *mut MpiHandle,
) -> c_int {
    let memory = range(start.cast(), count as usize);
    // Earlier data here belonged to a message that no longer exists.
    with(|network| network.received.retain(|(start, _)| !memory.contains(start)));
    // SAFETY: as above.
    unsafe { *request = begin(Operation::Receive { memory, from, tag, cancelled: false }) };
    0
}

extern "C" fn improbe(
    from: c_int,
    tag: c_int,
    communicator: MpiHandle,
    arrived: *mut c_int,
    message: *mut MpiHandle,
    _status: *mut MpiStatus,
) -> c_int {
    if communicator == BLOCKING {
        loop {
            std::thread::park();
        }
    }
    let found = with(|network| network.arriving.iter().any(|message| message.fits(from, tag)));
    // SAFETY: as above.
    unsafe { (*arrived, *message) = (c_int::from(found), MpiHandle::from(found)) };
    0
}

/// Receives the first control message, which is the one that was probed.
extern "C" fn imrecv(
    start: *mut c_void,
    count: c_int,
    kind: MpiHandle,
    _message: *mut MpiHandle,
    request: *mut MpiHandle,
) -> c_int {
    irecv(start, count, kind, ANY_SOURCE, c_int::from(CONTROL_TAG), 1, request)
}

extern "C" fn test(request: *mut MpiHandle, done: *mut c_int, status: *mut MpiStatus) -> c_int {
    // SAFETY: the caller passes live cells; a status is an array of integers.
    let (done, fields) = unsafe { (&mut *done, std::slice::from_raw_parts_mut(status.cast::<c_int>(), 16)) };
    // SAFETY: as above.
    let handle = unsafe { *request };
    with(|network| {
        *done = 1;
        match network.open.remove(&handle) {
            None => NO_SUCH_REQUEST,
            Some(Operation::Immediate) => 0,
            Some(Operation::Receive { cancelled: true, .. }) => {
                fields[CANCELLED] = 1;
                0
            }
            Some(Operation::Receive { memory, from, tag, cancelled }) => {
                let Some(index) = network.arriving.iter().position(|message| message.fits(from, tag)) else {
                    *done = 0;
                    network.open.insert(handle, Operation::Receive { memory, from, tag, cancelled });
                    return 0;
                };
                let Some((source, message)) = network.arriving.remove(index) else { return NO_SUCH_REQUEST };
                let bytes = match &message {
                    Arriving::ControlMessage(control) => control.len(),
                    Arriving::Chunk { bytes, .. } => *bytes,
                };
                if bytes > memory.len() {
                    return TRUNCATED;
                }
                match &message {
                    Arriving::ControlMessage(control) => {
                        let start = memory.start as *mut u8;
                        // SAFETY: the engine lends this memory until the request completes, which is now.
                        unsafe { start.copy_from_nonoverlapping(control.as_ptr(), bytes) };
                    }
                    Arriving::Chunk { .. } => network.received.push((memory.start, bytes)),
                }
                (fields[COUNT], fields[SOURCE]) = (bytes as c_int, source as c_int);
                0
            }
        }
    })
}

extern "C" fn test_cancelled(status: *const MpiStatus, cancelled: *mut c_int) -> c_int {
    // SAFETY: the caller passes live cells; a status is an array of integers.
    unsafe { *cancelled = *status.cast::<c_int>().add(CANCELLED) };
    0
}

extern "C" fn get_count(status: *const MpiStatus, _type: MpiHandle, count: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { *count = *status.cast::<c_int>().add(COUNT) };
    0
}

extern "C" fn cancel(request: *mut MpiHandle) -> c_int {
    // SAFETY: the caller passes a live handle.
    let handle = unsafe { *request };
    with(|network| match network.open.get_mut(&handle) {
        Some(Operation::Receive { cancelled, .. }) => {
            *cancelled = true;
            0
        }
        _ => NO_SUCH_REQUEST,
    })
}

trait Fits {
    fn fits(&self, from: c_int, tag: c_int) -> bool;
}

impl Fits for (usize, Arriving) {
    fn fits(&self, from: c_int, tag: c_int) -> bool {
        let of = match self.1 {
            Arriving::ControlMessage(_) => CONTROL_TAG,
            Arriving::Chunk { tag, .. } => tag,
        };
        tag == c_int::from(of) && (from == ANY_SOURCE || from as usize == self.0)
    }
}
