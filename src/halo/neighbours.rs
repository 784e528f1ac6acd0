//! Waiting for neighbours: until the deadline, and only while they live and make the same call.

use std::time::Instant;

use crate::error::{Lost, Result};
use crate::transport::arena::patience::NAP;
use crate::transport::{Call, Verb};
use crate::world::Group;

/// The call in which the awaited neighbours do their part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begun {
    pub verb: Verb,
    pub number: u64,
}

/// Waits until `done`. `missing` says whether a member of the group is still needed; `begun` is the call that it does its
/// part in, where a member that makes another call instead will never do it.
pub(super) fn wait(
    group: &Group,
    call: &Call,
    begun: Option<Begun>,
    done: impl Fn() -> bool,
    missing: impl Fn(usize) -> bool,
) -> Result<()> {
    let Some(seat) = &group.core.common.seat else { return Ok(()) };
    let mut looked = Instant::now();
    let mut suspects = Vec::new();
    let check = || {
        // Bells ring for many reasons; looking at processes costs more than one ring.
        if looked.elapsed() < NAP {
            return Ok(());
        }
        looked = Instant::now();
        look(group, call, begun, &missing, &mut suspects)
    };
    seat.patience.wait(&seat.place().bell, done, check, || false)
}

/// Fails if there is no sense in waiting any longer.
fn look(
    group: &Group,
    call: &Call,
    begun: Option<Begun>,
    missing: &impl Fn(usize) -> bool,
    suspects: &mut Vec<(usize, String)>,
) -> Result<()> {
    call.check_interrupt()?;
    let (Some(channel), Some(seat)) = (&group.core.channel, &group.core.common.seat) else { return Ok(()) };
    // Read first who is gone or elsewhere, then who is missing: a member that did its part and went on is neither.
    let members = 0..group.size();
    let gone: Vec<Option<Lost>> = members.clone().map(|member| channel.lost(member)).collect();
    let elsewhere: Vec<Option<String>> =
        members.clone().map(|member| begun.and_then(|begun| elsewhere(group, member, begun))).collect();
    let awaited: Vec<usize> = members.filter(|&member| missing(member)).collect();
    let lost: Vec<Lost> = awaited.iter().filter_map(|&member| gone[member].clone()).collect();
    if !lost.is_empty() {
        return Err(call.lost(lost));
    }
    let rank = |member: usize| group.members()[member];
    if call.remaining().is_zero() && !awaited.is_empty() {
        return Err(call.timeout(seat.all_missing(awaited.into_iter().map(rank))));
    }
    // A member's notes are read while it may be writing them: only what is seen twice counts.
    let words = |member: usize| elsewhere[member].clone().map(|words| (rank(member), words));
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

/// What a member does instead of the call, in words.
fn elsewhere(group: &Group, member: usize, begun: Begun) -> Option<String> {
    let seat = group.core.common.seat.as_ref()?;
    let activity = seat.arena.place(seat.seat_of(group.members()[member])?).activity();
    let verb = activity.verb?;
    let past = activity.number > begun.number || (activity.number == begun.number && !activity.inside);
    let other = activity.number == begun.number && verb != begun.verb;
    (activity.context == group.core.context && (past || other))
        .then(|| format!("{} #{}", verb.name(), activity.number))
}
