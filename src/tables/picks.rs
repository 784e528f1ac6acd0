//! A list of rows, brought into the order of the stripes that hold them: each lock is then taken once.

use std::sync::Mutex;

/// One of a list's rows: which, and where it stands in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pick {
    pub row: u32,
    pub position: u32,
}

/// The stripes of a table, as sorting needs them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stripes {
    /// How many rows each has: a power of two.
    pub rows: usize,
    pub count: usize,
    /// Where to begin.
    pub first: usize,
}

/// The picks of one stripe, and those after them, for who wants to look ahead.
pub(super) struct Group<'a> {
    pub stripe: usize,
    picks: &'a [Pick],
    count: usize,
}

impl<'a> Group<'a> {
    /// Each pick of the stripe, after `ahead` was called for one that comes a little later, perhaps in another stripe.
    #[inline(always)]
    pub fn each(&self, ahead: impl Fn(&Pick), mut each: impl FnMut(&Pick)) {
        let later = self.picks.get(AHEAD..).unwrap_or(&[]);
        for (index, pick) in self.picks[..self.count].iter().enumerate() {
            later.get(index).into_iter().for_each(&ahead);
            each(pick);
        }
    }
}

/// How far to look ahead: far enough for memory to come, near enough for it to be there still.
const AHEAD: usize = 8;

/// Where sorted picks lie: kept from call to call, because fresh memory costs more than sorting.
#[derive(Debug, Default)]
pub(super) struct Room(Mutex<Vec<Pick>>);

impl Room {
    /// Sorts picks by stripe, keeping the order of the list within each, and hands out every stripe's.
    pub fn by_stripe<E>(
        &self,
        picks: impl Iterator<Item = Pick> + Clone,
        stripes: Stripes,
        mut each: impl FnMut(Group) -> Result<(), E>,
    ) -> Result<(), E> {
        let shift = stripes.rows.ilog2();
        let stripe = |pick: &Pick| (u64::from(pick.row) >> shift) as usize;
        // Another thread's call may have the room; a panic left nothing behind that matters.
        let mut kept = self.0.try_lock().ok();
        let mut own = Vec::new();
        let sorted = in_groups(picks, stripes.count, stripe, kept.as_deref_mut().unwrap_or(&mut own));
        let cut = sorted.partition_point(|pick| stripe(pick) < stripes.first);
        let (before, after) = sorted.split_at(cut);
        for mut rest in [after, before] {
            while let Some(first) = rest.first() {
                let number = stripe(first);
                let count = rest.iter().position(|pick| stripe(pick) != number).unwrap_or(rest.len());
                each(Group { stripe: number, picks: rest, count })?;
                rest = &rest[count..];
            }
        }
        Ok(())
    }
}

/// Sorts by group, keeping the order of the list within each: a counting sort, two walks over the list whatever its length.
/// The result lies in `room`, which grows.
pub(super) fn in_groups<P: Copy + Default>(
    picks: impl Iterator<Item = P> + Clone,
    groups: usize,
    group: impl Fn(&P) -> usize,
    room: &mut Vec<P>,
) -> &[P] {
    if let (few, Some(most)) = picks.size_hint()
        && most * 8 < groups
    {
        room.clear();
        room.reserve(few);
        room.extend(picks);
        room.sort_by_key(group);
        return room;
    }
    let mut starts = vec![0u32; groups + 1];
    picks.clone().for_each(|pick| starts[group(&pick) + 1] += 1);
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let count = starts[groups] as usize;
    if room.len() < count {
        room.resize(count, P::default());
    }
    for pick in picks {
        let place = &mut starts[group(&pick)];
        room[*place as usize] = pick;
        *place += 1;
    }
    &room[..count]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pick_is_handed_out_once_in_the_order_of_the_list() {
        let room = Room::default();
        for (count, rows, stripe_rows) in [(0, 5, 2), (1, 5, 2), (7, 3, 1), (5, 1000, 4), (500, 100, 8)] {
            let row = |position: usize| (position * 7919 + position * position) % rows;
            let list: Vec<Pick> =
                (0..count).map(|at| Pick { row: row(at) as u32, position: at as u32 }).collect();
            let stripes = rows.div_ceil(stripe_rows);
            for first in [0, stripes / 2, stripes - 1] {
                let (mut seen, mut order) = (Vec::new(), Vec::new());
                let announced = std::cell::RefCell::new(Vec::new());
                room.by_stripe(
                    list.iter().copied(),
                    Stripes { rows: stripe_rows, count: stripes, first },
                    |group| {
                        let start = seen.len();
                        group.each(|pick| announced.borrow_mut().push(*pick), |pick| seen.push(*pick));
                        let picks: &[Pick] = &seen[start..];
                        assert!(picks.iter().all(|pick| pick.row as usize / stripe_rows == group.stripe));
                        assert!(picks.is_sorted_by_key(|pick| pick.position));
                        order.push((group.stripe + stripes - first) % stripes);
                        Ok::<(), ()>(())
                    },
                )
                .unwrap();
                assert!(order.is_sorted_by(|one, other| one < other), "each stripe once: {order:?}");
                assert!(announced.borrow().iter().all(|pick| seen.contains(pick)));
                seen.sort_by_key(|pick| pick.position);
                assert_eq!(seen, list);
            }
        }
    }
}
