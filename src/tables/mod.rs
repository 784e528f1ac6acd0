//! Layer 5: tables, the parameters that all workers share.

// What only tables call has no caller yet outside its tests.
#[allow(dead_code, unused_imports)]
mod checkpoint;
