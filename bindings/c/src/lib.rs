//! The C library `libunisono`: every function returns a status, and the text of an error is kept for its thread.
//!
//! The functions are in no public module: they are for C, which sees them through `include/unisono.h`.

// Every call passes here.
mod ffi_args;
mod handles;
mod kinds;
mod session;

// The header has its functions in this order.
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
