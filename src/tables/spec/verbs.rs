//! The verbs of tables: collective calls, and those in which a worker waits for others.

use crate::transport::{VerbDescriptor, verbs};

verbs! {
    JOIN: VerbDescriptor::new(30, "the first use of tables").without_sizes(),
    NEW_TABLE: VerbDescriptor::new(31, "new table").without_sizes(),
    SAVE: VerbDescriptor::new(32, "save").without_sizes(),
    LOAD: VerbDescriptor::new(33, "load").without_sizes(),
    GET: VerbDescriptor::new(34, "a table's get"),
    ADD: VerbDescriptor::new(35, "a table's add"),
}
