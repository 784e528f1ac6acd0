//! The three binary interfaces of MPI (the standard one, Open MPI's, MPICH's own) behind one table of functions.
//!
//! The facts below were read from the headers of MPICH 5 (both its interfaces) and Open MPI 4.1 and 5.
//!
//! A handle (communicator, datatype, request, …) is a pointer in the standard ABI and in Open MPI, and a C `int` in
//! MPICH. This library only runs where both are passed the same way: on 64-bit little-endian machines an `int` argument
//! occupies the low half of the register or stack slot that a pointer would use, and an `int` written through a pointer
//! to a zeroed 8-byte cell leaves the same number in the cell. So one [`MpiHandle`] and one set of signatures serve all
//! three, as long as no array of handles is ever passed; none is.

use std::ffi::{c_char, c_int, c_void};
use std::fmt;

use libloading::os::unix::Library;

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "the MPI transport passes int and pointer handles alike, which needs a 64-bit little-endian machine"
);

/// An MPI handle of any ABI; see the module documentation.
pub(super) type MpiHandle = usize;

/// Storage for an `MPI_Status` of any ABI (20 to 32 bytes), aligned for all of them.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
pub(super) struct MpiStatus([i32; 16]);

/// The binary interface (ABI) of an MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// The ABI standardised by MPI 5 (`libmpi_abi`), from any vendor.
    Standard,
    /// Open MPI's own.
    OpenMpi,
    /// MPICH and its derivatives (Intel MPI, MVAPICH, Cray).
    Mpich,
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Interface::Standard => "MPI standard ABI",
            Interface::OpenMpi => "Open MPI",
            Interface::Mpich => "MPICH",
        })
    }
}

/// The constants that differ between ABIs.
pub(super) struct MpiConstants {
    pub comm_world: MpiHandle,
    pub comm_self: MpiHandle,
    pub byte: MpiHandle,
    pub errors_return: MpiHandle,
    pub any_source: c_int,
    pub thread_serialized: c_int,
    pub thread_multiple: c_int,
    /// The position of `MPI_SOURCE` in the status, in ints.
    status_source: usize,
}

impl MpiConstants {
    pub fn of(interface: Interface, library: &Library) -> Result<MpiConstants, libloading::Error> {
        Ok(match interface {
            Interface::Standard => MpiConstants {
                comm_world: 0x101,
                comm_self: 0x102,
                byte: 0x247,
                errors_return: 0x143,
                any_source: -1,
                thread_serialized: 2048,
                thread_multiple: 4096,
                status_source: 0,
            },
            Interface::Mpich => MpiConstants {
                comm_world: 0x4400_0000,
                comm_self: 0x4400_0001,
                byte: 0x4c00_010d,
                errors_return: 0x5400_0001,
                any_source: -2,
                thread_serialized: 2,
                thread_multiple: 3,
                status_source: 2,
            },
            Interface::OpenMpi => MpiConstants {
                comm_world: address(library, "ompi_mpi_comm_world")?,
                comm_self: address(library, "ompi_mpi_comm_self")?,
                byte: address(library, "ompi_mpi_byte")?,
                errors_return: address(library, "ompi_mpi_errors_return")?,
                any_source: -1,
                thread_serialized: 2,
                thread_multiple: 3,
                status_source: 0,
            },
        })
    }

    /// The source rank in a status.
    pub fn source(&self, status: &MpiStatus) -> c_int {
        status.0[self.status_source]
    }
}

/// The address of one of a library's predefined objects.
fn address(library: &Library, name: &str) -> Result<MpiHandle, libloading::Error> {
    // SAFETY: only the symbol's address is taken; nothing is read through it and nothing is called.
    Ok(unsafe { library.get::<*const c_void>(name)? }.as_raw_ptr() as MpiHandle)
}

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*);)*) => {
        /// The MPI functions that the transport calls, with their constants.
        pub(super) struct MpiFunctions {
            pub constants: MpiConstants,
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl MpiFunctions {
            /// Resolves every function.
            ///
            /// # Safety
            /// `library` must be an MPI library with ABI `interface`, and must stay loaded while the table is used.
            pub unsafe fn load(interface: Interface, library: &Library) -> Result<MpiFunctions, libloading::Error> {
                Ok(MpiFunctions {
                    constants: MpiConstants::of(interface, library)?,
                    // SAFETY: the caller guarantees that this is an MPI library; these are MPI's own signatures, with
                    // every handle as [`MpiHandle`], which the module documentation justifies.
                    $($field: unsafe { *library.get($name)? },)*
                })
            }
        }
    };
}

functions! {
    get_library_version = "MPI_Get_library_version" (*mut c_char, *mut c_int);
    initialized = "MPI_Initialized" (*mut c_int);
    finalized = "MPI_Finalized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    query_thread = "MPI_Query_thread" (*mut c_int);
    finalize = "MPI_Finalize" ();
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    comm_rank = "MPI_Comm_rank" (MpiHandle, *mut c_int);
    comm_size = "MPI_Comm_size" (MpiHandle, *mut c_int);
    comm_set_errhandler = "MPI_Comm_set_errhandler" (MpiHandle, MpiHandle);
    comm_idup = "MPI_Comm_idup" (MpiHandle, *mut MpiHandle, *mut MpiHandle);
    comm_free = "MPI_Comm_free" (*mut MpiHandle);
    iallgather = "MPI_Iallgather" (*const c_void, c_int, MpiHandle, *mut c_void, c_int, MpiHandle, MpiHandle, *mut MpiHandle);
    ibarrier = "MPI_Ibarrier" (MpiHandle, *mut MpiHandle);
    isend = "MPI_Isend" (*const c_void, c_int, MpiHandle, c_int, c_int, MpiHandle, *mut MpiHandle);
    irecv = "MPI_Irecv" (*mut c_void, c_int, MpiHandle, c_int, c_int, MpiHandle, *mut MpiHandle);
    improbe = "MPI_Improbe" (c_int, c_int, MpiHandle, *mut c_int, *mut MpiHandle, *mut MpiStatus);
    imrecv = "MPI_Imrecv" (*mut c_void, c_int, MpiHandle, *mut MpiHandle, *mut MpiHandle);
    test = "MPI_Test" (*mut MpiHandle, *mut c_int, *mut MpiStatus);
    test_cancelled = "MPI_Test_cancelled" (*const MpiStatus, *mut c_int);
    get_count = "MPI_Get_count" (*const MpiStatus, MpiHandle, *mut c_int);
    cancel = "MPI_Cancel" (*mut MpiHandle);
}
