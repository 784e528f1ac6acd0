//! Waiting for neighbours: until the deadline, and only while they live and make the same call.

use crate::error::{Lost, Missing, Result};
use crate::transport::arena::channel::Channel;
use crate::transport::wait::Awaited;
use crate::transport::{Call, Verb};
use crate::world::Group;

/// The call in which the awaited neighbours do their part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StartedCall {
    pub verb: Verb,
    pub number: u64,
}

/// Waits until `done`. `missing` says whether a member of the group is still needed; `started` is the call that it does its
/// part in, where a member that makes another call instead will never do it.
pub(super) fn wait(
    group: &Group,
    call: &Call,
    started: Option<StartedCall>,
    done: impl Fn() -> bool,
    missing: impl Fn(usize) -> bool,
) -> Result<()> {
    let Some(seat) = &group.core.common.seat else { return Ok(()) };
    let mut suspects = Vec::new();
    let check = || check_neighbours(group, call, started, &missing, &mut suspects);
    seat.patience.wait(call, &seat.place().bell, done, check, || false)
}

/// Fails if there is no sense in waiting any longer.
fn check_neighbours(
    group: &Group,
    call: &Call,
    started: Option<StartedCall>,
    missing: &impl Fn(usize) -> bool,
    suspects: &mut Vec<(usize, String)>,
) -> Result<()> {
    let (Some(channel), Some(_)) = (&group.core.channel, &group.core.common.seat) else {
        return call.check_interrupt();
    };
    // Read first who is elsewhere, then who is missing: a member that did its part and went on is not.
    let diverging_call: Vec<Option<String>> =
        (0..group.size()).map(|member| started.and_then(|started| diverging_call(group, member, started))).collect();
    let neighbours = Neighbours { group, channel, missing };
    if call.check(&neighbours, || Ok(neighbours.awaited().is_empty()))? {
        return Ok(());
    }
    let (awaited, rank) = (neighbours.awaited(), |member: usize| group.members()[member]);
    // A member's notes are read while it may be writing them: only what is seen twice counts.
    let words = |member: usize| diverging_call[member].clone().map(|words| (rank(member), words));
    let found: Vec<(usize, String)> = awaited.into_iter().filter_map(words).collect();
    if !found.is_empty() && found == *suspects {
        let mine = (call.rank, format!("{} #{}", call.operation, call.number));
        let error = call.mismatch(std::iter::once(mine).chain(found).collect());
        // The others see each other's parts missing too, but only we know why.
        group.give_up(&error);
        return Err(error);
    }
    *suspects = found;
    Ok(())
}

/// The members whose part is missing.
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
        self.group.core.common.seat.as_ref().map_or_else(Vec::new, |seat| seat.all_missing(ranks))
    }
}

/// What a member does instead of the call, in words.
fn diverging_call(group: &Group, member: usize, started: StartedCall) -> Option<String> {
    let seat = group.core.common.seat.as_ref()?;
    let activity = seat.arena.place(seat.seat_of(group.members()[member])?).activity();
    let verb = activity.verb?;
    let past = activity.number > started.number || (activity.number == started.number && !activity.inside);
    let other = activity.number == started.number && verb != started.verb;
    (activity.context == group.core.context && (past || other))
        .then(|| format!("{} #{}", verb.name(), activity.number))
}
