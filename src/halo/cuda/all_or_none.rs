//! Collective error handling for what each rank makes on its own device: all ranks have it afterwards, or all fail.

use std::io;

use crate::error::{Error, Result};
use crate::world::Group;

/// Returns what this rank has made. If another rank has failed, it fails here too, instead of in a later wait for that rank.
pub(super) fn all_or_none<T>(group: &Group, made: Result<T>) -> Result<T> {
    let failure = group.find_failure(made.as_ref().err());
    // A rank's own failure is more informative than that of the collective.
    let made = made?;
    let Some(failure) = failure? else { return Ok(made) };
    let what = format!("rank {} has no room or no device for it", group.members()[failure.rank]);
    let cause = io::Error::other("it failed on another rank, and so on all");
    Err(Error::io("halo plan", what, cause, "see that rank's error"))
}

#[cfg(test)]
mod tests {
    use super::all_or_none;
    use crate::error::Error;
    use crate::testing::spawn;

    #[test]
    fn one_rank_that_fails_is_named_by_all_and_calls_go_on() {
        spawn(3, |group| {
            assert_eq!(all_or_none(&group, Ok(group.rank())).unwrap(), group.rank());
            let mine = match group.rank() {
                1 => Err(Error::internal("a test", "no memory here")),
                rank => Ok(rank),
            };
            let words = all_or_none(&group, mine).unwrap_err().to_string();
            let expected = if group.rank() == 1 { "no memory here" } else { "rank 1 has no room" };
            assert!(words.contains(expected), "{words}");
            group.barrier().unwrap();
        });
    }
}
