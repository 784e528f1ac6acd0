//! Waits for neighbours: until the deadline, and only while they are alive and make the same call.

use crate::error::{Lost, Missing, Result};
use crate::transport::arena::channel::Channel;
use crate::transport::wait::Awaited;
use crate::transport::{Call, Verb};
use crate::world::Group;

/// The call in which the awaited neighbours send their data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StartedCall {
    pub verb: Verb,
    pub number: u64,
}

/// Waits until `done`. `missing` returns whether a member of the group is still awaited; `started` is the call in which it
/// sends its data: a member that makes another call instead will never send it.
pub(super) fn wait(
    group: &Group,
    call: &Call,
    started: Option<StartedCall>,
    done: impl Fn() -> bool,
    missing: impl Fn(usize) -> bool,
) -> Result<()> {
    let Some(endpoint) = group.endpoint() else { return Ok(()) };
    let mut suspects = Vec::new();
    let check = || check_neighbours(group, call, started, &missing, &mut suspects);
    endpoint.backoff.wait(call, &endpoint.own_slot().doorbell, done, check, || false)
}

/// Fails if waiting any longer is pointless.
fn check_neighbours(
    group: &Group,
    call: &Call,
    started: Option<StartedCall>,
    missing: &impl Fn(usize) -> bool,
    suspects: &mut Vec<(usize, String)>,
) -> Result<()> {
    let (Some(channel), Some(_)) = (group.channel(), group.endpoint()) else {
        return call.check_interrupt();
    };
    // Read first which members make another call, then which are missing: a member that sent its data and went on is not
    // missing.
    let diverging_call: Vec<Option<String>> = (0..group.size())
        .map(|member| started.and_then(|started| diverging_call(group, member, started)))
        .collect();
    let neighbours = Neighbours { group, channel, missing };
    if call.check(&neighbours, || Ok(neighbours.awaited().is_empty()))? {
        return Ok(());
    }
    let (awaited, rank) = (neighbours.awaited(), |member: usize| group.members()[member]);
    // A member's activity is read while it may be writing it: only what is seen twice counts.
    let words = |member: usize| diverging_call[member].clone().map(|words| (rank(member), words));
    let found: Vec<(usize, String)> = awaited.into_iter().filter_map(words).collect();
    if !found.is_empty() && found == *suspects {
        let mine = (call.rank, format!("{} #{}", call.operation, call.number));
        let error = call.mismatch(std::iter::once(mine).chain(found).collect());
        // The other ranks also notice missing data, but only this rank knows the cause.
        group.revoke_with(&error);
        return Err(error);
    }
    *suspects = found;
    Ok(())
}

/// The members whose data is missing.
struct Neighbours<'a, F> {
    group: &'a Group,
    channel: &'a Channel,
    missing: &'a F,
}

impl<F: Fn(usize) -> bool> Awaited for Neighbours<'_, F> {
    fn awaited(&self) -> Vec<usize> {
        (0..self.group.size()).filter(|&member| (self.missing)(member)).collect()
    }

    fn lost(&self, member: usize) -> Option<Lost> {
        self.channel.lost(member)
    }

    fn missing(&self, members: Vec<usize>) -> Vec<Missing> {
        let ranks = members.into_iter().map(|member| self.group.members()[member]);
        self.group.endpoint().map_or_else(Vec::new, |endpoint| endpoint.all_missing(ranks))
    }
}

/// Describes the call that a member makes instead of the expected one, if it does.
fn diverging_call(group: &Group, member: usize, started: StartedCall) -> Option<String> {
    let endpoint = group.endpoint()?;
    let activity = endpoint.arena.peer_slot(endpoint.local_rank_of(group.members()[member])?).activity();
    let verb = activity.verb?;
    let past = activity.number > started.number || (activity.number == started.number && !activity.inside);
    let other = activity.number == started.number && verb != started.verb;
    (activity.context == group.context() && (past || other))
        .then(|| format!("{} #{}", verb.name(), activity.number))
}
