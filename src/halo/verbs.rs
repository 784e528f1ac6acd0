//! The verbs of halo exchanges, with the numbers by which ranks compare their calls.

use crate::transport::{VerbDescriptor, verbs};

verbs! {
    FORWARD: VerbDescriptor::new(20, "halo forward"),
    ADJOINT: VerbDescriptor::new(21, "halo adjoint"),
    END: VerbDescriptor::new(22, "halo end"),
    CUDA_FORWARD: VerbDescriptor::new(23, "halo forward in CUDA memory"),
    CUDA_ADJOINT: VerbDescriptor::new(24, "halo adjoint in CUDA memory"),
}
