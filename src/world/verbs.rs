//! The verbs of the calls that create the world and its groups.

use crate::transport::{VerbDescriptor, verbs};

verbs! {
    GROUP: VerbDescriptor::new(11, "group"),
    INIT: VerbDescriptor::new(15, "init"),
}
