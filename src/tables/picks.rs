//! A list of rows, brought into the order of the stripes that hold them: each lock is then taken once.

/// One of a list's rows: which, and where it stands in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pick {
    pub row: u32,
    pub position: u32,
}

/// Sorts picks by stripe, keeping the order of the list within each, and hands out every stripe's.
pub(super) fn by_stripe<E>(
    picks: Vec<Pick>,
    stripe_rows: usize,
    stripes: usize,
    mut each: impl FnMut(usize, &[Pick]) -> Result<(), E>,
) -> Result<(), E> {
    let stripe_rows = u32::try_from(stripe_rows).unwrap_or(u32::MAX);
    let stripe = |pick: &Pick| (pick.row / stripe_rows) as usize;
    let sorted = in_groups(picks, stripes, stripe);
    let mut rest = &sorted[..];
    while let Some(first) = rest.first() {
        let number = stripe(first);
        let count = rest.iter().position(|pick| stripe(pick) != number).unwrap_or(rest.len());
        each(number, &rest[..count])?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Sorts by group, keeping the order of the list within each.
pub(super) fn in_groups<P: Copy + Default>(
    mut picks: Vec<P>,
    groups: usize,
    group: impl Fn(&P) -> usize,
) -> Vec<P> {
    match picks.len() * 8 > groups {
        true => count_and_place(&picks, groups, group),
        false => {
            picks.sort_by_key(group);
            picks
        }
    }
}

/// A counting sort: two walks over the list, whatever its length.
fn count_and_place<P: Copy + Default>(picks: &[P], groups: usize, group: impl Fn(&P) -> usize) -> Vec<P> {
    let mut starts = vec![0u32; groups + 1];
    picks.iter().for_each(|pick| starts[group(pick) + 1] += 1);
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let mut sorted = vec![P::default(); picks.len()];
    for pick in picks {
        let place = &mut starts[group(pick)];
        sorted[*place as usize] = *pick;
        *place += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pick_is_handed_out_once_in_the_order_of_the_list() {
        for (count, rows, stripe_rows) in [(0, 5, 2), (1, 5, 2), (7, 3, 1), (5, 1000, 3), (500, 100, 7)] {
            let row = |position: usize| (position * 7919 + position * position) % rows;
            let list: Vec<Pick> =
                (0..count).map(|at| Pick { row: row(at) as u32, position: at as u32 }).collect();
            let mut seen = Vec::new();
            by_stripe(list.clone(), stripe_rows, rows.div_ceil(stripe_rows), |stripe, picks| {
                assert!(picks.iter().all(|pick| pick.row as usize / stripe_rows == stripe));
                assert!(picks.is_sorted_by_key(|pick| pick.position));
                seen.extend_from_slice(picks);
                Ok::<(), ()>(())
            })
            .unwrap();
            seen.sort_by_key(|pick| pick.position);
            assert_eq!(seen, list);
        }
    }
}
