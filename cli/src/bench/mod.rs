//! `unisono bench`.
use std::ffi::OsString;
#[derive(clap::Args)]
pub(crate) struct Options {}
#[derive(clap::Args)]
pub(crate) struct BenchRank {}
pub(crate) fn bench(_: &Options, _: &[OsString]) -> i32 {
    0
}
pub(crate) fn bench_rank(_: &BenchRank) -> i32 {
    0
}
