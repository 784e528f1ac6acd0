//! The verbs of collectives, with the numbers by which ranks compare their calls.

use crate::transport::{VerbDescriptor, verbs};

verbs! {
    BARRIER: VerbDescriptor::new(1, "barrier"),
    BROADCAST: VerbDescriptor::new(2, "broadcast"),
    SCATTER: VerbDescriptor::new(3, "scatter"),
    GATHER: VerbDescriptor::new(4, "gather"),
    ALL_GATHER: VerbDescriptor::new(5, "all_gather"),
    REDUCE: VerbDescriptor::new(6, "reduce"),
    ALL_REDUCE: VerbDescriptor::new(7, "all_reduce"),
    REDUCE_SCATTER: VerbDescriptor::new(8, "reduce_scatter"),
    ALL_TO_ALL: VerbDescriptor::new(9, "all_to_all"),
}
