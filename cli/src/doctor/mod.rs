//! `unisono doctor`.
use std::ffi::OsString;
#[derive(clap::Args)]
pub(crate) struct Options {}
#[derive(clap::Args)]
pub(crate) struct CheckRank {}
pub(crate) fn doctor(_: &Options, _: &[OsString]) -> i32 {
    0
}
pub(crate) fn check_rank(_: &CheckRank) -> i32 {
    0
}
