//! The MPI calls used by the transport, with errors instead of return codes. Every method must be called under the
//! engine's lock: MPI is then entered by one thread at a time, which MPI_THREAD_SERIALIZED permits.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use super::abi::{MpiHandle, MpiStatus};
use super::library::LoadedMpi;
use super::wait::PollBackoff;
use crate::error::{Error, Result};
use crate::transport::wait::poll_until;

/// A loaded and initialised MPI, with its own duplicate of MPI_COMM_WORLD.
pub(super) struct MpiRuntime {
    library: LoadedMpi,
    communicator: MpiHandle,
    /// Whether this library called MPI_Init_thread, and so must call MPI_Finalize.
    initialised_here: bool,
    pub rank: usize,
    pub size: usize,
}

/// A send or receive in progress. Dropping the value leaks the request; MPI continues it.
#[derive(Debug)]
pub(super) struct MpiRequest(MpiHandle);

/// The outcome of a request.
pub(super) struct Completion {
    pub source: usize,
    pub bytes: usize,
    pub cancelled: bool,
}

impl MpiRuntime {
    /// Initialises MPI unless that was done already, and creates the communicator. MPI_Init_thread itself has no
    /// deadline: the launcher ends a job whose ranks do not all start.
    pub fn start(library: LoadedMpi, deadline: Instant) -> Result<MpiRuntime> {
        let mut mpi = MpiRuntime { library, communicator: 0, initialised_here: false, rank: 0, size: 0 };
        mpi.initialise()?;
        let functions = &mpi.library.functions;
        let world = functions.constants.comm_world;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised and the pointers are to live integers.
        mpi.check("MPI_Comm_rank", unsafe { (functions.comm_rank)(world, &mut rank) })?;
        // SAFETY: as above.
        mpi.check("MPI_Comm_size", unsafe { (functions.comm_size)(world, &mut size) })?;
        // MPI writes the new handle while the request is in flight, possibly after the deadline: the cell is leaked.
        let cell: &'static mut MpiHandle = Box::leak(Box::new(0));
        let mut request = MpiRequest(0);
        // SAFETY: both cells are live; the one for the communicator lives forever.
        let code = unsafe { (functions.comm_idup)(world, &mut *cell, &mut request.0) };
        mpi.check("MPI_Comm_idup", code)?;
        mpi.finish(request, deadline, "create the communicator")?;
        mpi.communicator = *cell;
        // SAFETY: the communicator is owned by this library and valid.
        let code = unsafe { (functions.comm_set_errhandler)(*cell, functions.constants.errors_return) };
        mpi.check("MPI_Comm_set_errhandler", code)?;
        (mpi.rank, mpi.size) = (rank as usize, size as usize);
        Ok(mpi)
    }

    fn initialise(&mut self) -> Result<()> {
        let functions = &self.library.functions;
        let constants = &functions.constants;
        let (mut finalized, mut initialized, mut level) = (0, 0, 0);
        // SAFETY: these two may be called at any time; the pointers are to live integers.
        unsafe {
            (functions.finalized)(&mut finalized);
            (functions.initialized)(&mut initialized);
        }
        if finalized != 0 {
            let what = "MPI was already finalised in this process, and MPI cannot be started twice";
            return Err(Error::unsupported("init", what, "keep one world for the whole life of the process"));
        }
        if initialized != 0 {
            // SAFETY: MPI is initialised.
            self.check("MPI_Query_thread", unsafe { (functions.query_thread)(&mut level) })?;
        } else {
            let arguments = std::ptr::null_mut();
            // SAFETY: MPI allows null instead of the program's arguments; MPI is not initialised yet.
            let code = unsafe {
                (functions.init_thread)(
                    arguments,
                    std::ptr::null_mut(),
                    constants.thread_multiple,
                    &mut level,
                )
            };
            self.check("MPI_Init_thread", code)?;
            // Errors that belong to no communicator, such as a broken connection, go to the handler of MPI_COMM_WORLD or,
            // since MPI 4, of MPI_COMM_SELF. The default one ends the process.
            for communicator in [constants.comm_world, constants.comm_self] {
                // SAFETY: this library has just initialised MPI, so no other code relies on these error handlers.
                unsafe { (functions.comm_set_errhandler)(communicator, constants.errors_return) };
            }
        }
        self.initialised_here = initialized == 0;
        if level < self.library.functions.constants.thread_serialized {
            let what = format!("{} does not allow calls from several threads", self.version());
            let advice =
                "initialise MPI with MPI_THREAD_MULTIPLE (mpi4py does so by default), or let unisono do it";
            return Err(Error::unsupported("init", what, advice));
        }
        Ok(())
    }

    /// Gathers every rank's `own` bytes, in rank order.
    pub fn all_gather(&self, own: &[u8], deadline: Instant) -> Result<Vec<u8>> {
        let functions = &self.library.functions;
        // Leaked (a small amount, once per process): MPI may still use the buffers after the deadline.
        let own: &'static mut [u8] = Box::leak(own.into());
        let all: &'static mut [u8] = Box::leak(vec![0; own.len() * self.size].into());
        let (count, byte) = (own.len() as c_int, functions.constants.byte);
        let mut request = MpiRequest(0);
        // SAFETY: the buffers have the stated sizes and live forever.
        let code = unsafe {
            let (own, all) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            (functions.iallgather)(own, count, byte, all, count, byte, self.communicator, &mut request.0)
        };
        self.check("MPI_Iallgather", code)?;
        self.finish(request, deadline, "exchange their hosts")?;
        Ok(all.to_vec())
    }

    fn finish(&self, mut request: MpiRequest, deadline: Instant, purpose: &str) -> Result<()> {
        let ended = poll_until(deadline, PollBackoff::new(true), || self.test(&mut request))?;
        ended.map(drop).ok_or_else(|| {
            let what = format!("not all ranks arrived in time to {purpose}");
            let advice = "see that every rank calls init, or raise the limit with UNISONO_TIMEOUT";
            Error::io("init", what, std::io::ErrorKind::TimedOut, advice)
        })
    }

    /// Starts a send.
    ///
    /// # Safety
    /// The `length` bytes at `start` must stay valid and unchanged until the request has completed.
    pub unsafe fn send(&self, start: *const u8, length: usize, to: usize, tag: u16) -> Result<MpiRequest> {
        let functions = &self.library.functions;
        let (byte, communicator) = (functions.constants.byte, self.communicator);
        let mut request = MpiRequest(0);
        let (to, tag) = (to as c_int, c_int::from(tag));
        // SAFETY: the caller guarantees the memory; the other arguments are live values of this function.
        let code = unsafe {
            (functions.isend)(
                start.cast::<c_void>(),
                length as c_int,
                byte,
                to,
                tag,
                communicator,
                &mut request.0,
            )
        };
        self.check("MPI_Isend", code).map(|()| request)
    }

    /// Starts a receive from one rank.
    ///
    /// # Safety
    /// The `length` bytes at `start` must stay valid and untouched until the request has completed.
    pub unsafe fn receive(&self, start: *mut u8, length: usize, from: usize, tag: u16) -> Result<MpiRequest> {
        let functions = &self.library.functions;
        let (byte, communicator) = (functions.constants.byte, self.communicator);
        let mut request = MpiRequest(0);
        let (from, tag) = (from as c_int, c_int::from(tag));
        // SAFETY: as for `send`.
        let code = unsafe {
            (functions.irecv)(
                start.cast::<c_void>(),
                length as c_int,
                byte,
                from,
                tag,
                communicator,
                &mut request.0,
            )
        };
        self.check("MPI_Irecv", code).map(|()| request)
    }

    /// Starts receiving an arrived message with this tag from any source, if there is one.
    ///
    /// Uses a matched probe, because receives posted with `MPI_ANY_SOURCE` sometimes never complete under MPICH's UCX
    /// netmod: the message arrives as an unexpected one and is never matched.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub unsafe fn receive_any(&self, start: *mut u8, length: usize, tag: u16) -> Result<Option<MpiRequest>> {
        let functions = &self.library.functions;
        let (source, tag) = (functions.constants.any_source, c_int::from(tag));
        let (mut arrived, mut message, mut status) = (0, 0, MpiStatus::default());
        // SAFETY: the pointers are to live values.
        let code = unsafe {
            (functions.improbe)(source, tag, self.communicator, &mut arrived, &mut message, &mut status)
        };
        self.check("MPI_Improbe", code)?;
        if arrived == 0 {
            return Ok(None);
        }
        let (byte, mut request) = (functions.constants.byte, MpiRequest(0));
        // SAFETY: as for `receive`; the message is the one just probed, and is received once.
        let code =
            unsafe { (functions.imrecv)(start.cast(), length as c_int, byte, &mut message, &mut request.0) };
        self.check("MPI_Imrecv", code).map(|()| Some(request))
    }

    /// Whether a request has completed. It must not be tested again after that.
    pub fn test(&self, request: &mut MpiRequest) -> Result<Option<Completion>> {
        let functions = &self.library.functions;
        let mut status = MpiStatus::default();
        let mut done = 0;
        // SAFETY: the request is live and the pointers are to live values.
        self.check("MPI_Test", unsafe { (functions.test)(&mut request.0, &mut done, &mut status) })?;
        if done == 0 {
            return Ok(None);
        }
        let (mut count, mut cancelled) = (0, 0);
        // SAFETY: the status was filled by MPI_Test.
        unsafe {
            (functions.get_count)(&status, functions.constants.byte, &mut count);
            (functions.test_cancelled)(&status, &mut cancelled);
        }
        let source = functions.constants.source(&status) as usize;
        Ok(Some(Completion { source, bytes: count.max(0) as usize, cancelled: cancelled != 0 }))
    }

    /// Requests cancellation of a receive; it must still be tested until it completes.
    pub fn cancel(&self, request: &mut MpiRequest) -> Result<()> {
        // SAFETY: the request is live.
        self.check("MPI_Cancel", unsafe { (self.library.functions.cancel)(&mut request.0) })
    }

    /// Starts a barrier over all ranks.
    pub fn barrier(&self) -> Result<MpiRequest> {
        let mut request = MpiRequest(0);
        // SAFETY: the communicator is valid.
        let code = unsafe { (self.library.functions.ibarrier)(self.communicator, &mut request.0) };
        self.check("MPI_Ibarrier", code).map(|()| request)
    }

    /// Frees the communicator, and finalises MPI if this library initialised it. All ranks must have reached this
    /// point.
    pub fn end(&self) -> Result<()> {
        let functions = &self.library.functions;
        let mut communicator = self.communicator;
        // SAFETY: this library no longer uses the communicator, and all ranks have arrived.
        self.check("MPI_Comm_free", unsafe { (functions.comm_free)(&mut communicator) })?;
        if self.initialised_here {
            // SAFETY: this library initialised MPI, and it has not been finalised yet.
            self.check("MPI_Finalize", unsafe { (functions.finalize)() })?;
        }
        Ok(())
    }

    /// The library's own version string.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// The address of one of the library's functions.
    pub fn code_address(&self) -> usize {
        self.library.functions.finalize as usize
    }

    pub fn path(&self) -> &std::path::Path {
        &self.library.path
    }

    fn check(&self, function: &str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // 512 bytes is the largest MPI_MAX_ERROR_STRING of the three ABIs.
        let mut text = vec![0u8; 512];
        let mut length: c_int = 0;
        // SAFETY: the buffer has the size that MPI requires.
        unsafe { (self.library.functions.error_string)(code, text.as_mut_ptr().cast(), &mut length) };
        text.truncate(length.clamp(0, 512) as usize);
        let text = String::from_utf8_lossy(&text).into_owned();
        let advice = "look at the output of the other ranks and of the MPI launcher for the cause";
        Err(Error::io("MPI", function, std::io::Error::other(text), advice))
    }
}
