//! The verb of the calls that make groups.

use crate::transport::{VerbDescriptor, verbs};

verbs! {
    GROUP: VerbDescriptor::new(11, "group"),
}
