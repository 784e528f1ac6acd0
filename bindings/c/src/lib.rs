//! The C library `libunisono`: every function returns a status, and the text of an error is stored per thread.
//!
//! The functions are in no public module: C programs use them through `include/unisono.h`.

// Used by every call.
mod ffi_args;
mod handles;
mod kinds;
mod session;

// The header lists its functions in the order of these modules.
mod errors;

mod world;

mod collectives;

mod parts;

mod group;

mod memory;

mod tables;

mod options;

mod table;

mod get_add;

mod key_value;

mod items;

mod pending;

#[allow(non_snake_case)]
mod multiverso;
