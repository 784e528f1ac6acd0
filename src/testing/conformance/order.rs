//! Ordering guarantees: of summation, of calls in the background, of messages.

use super::assert_same;
use crate::error::Result;
use crate::memory::ReduceOp;
use crate::world::Group;

/// Sums that are not exact: every rank must get the bits of the fold in rank order.
pub(super) fn same_bits_everywhere(group: &Group) -> Result<()> {
    let group = group.deterministic(true);
    let input = |rank: usize, count: usize| -> Vec<f32> {
        (0..count).map(|index| 1.0 / (1.0 + rank as f32 * 7.7 + index as f32 * 0.37)).collect()
    };
    for count in [5, 9_000, 400_003] {
        let mut expected = input(0, count);
        for rank in 1..group.size() {
            expected.iter_mut().zip(input(rank, count)).for_each(|(sum, value)| *sum += value);
        }
        let mut found = input(group.rank(), count);
        group.all_reduce(&mut found, ReduceOp::Sum)?;
        assert_same("all_reduce in rank order", &found, &expected);
    }
    Ok(())
}

/// Calls in the background and calls in between run in the order in which they were made.
pub(super) fn background_keeps_order(group: &Group) -> Result<()> {
    let size = group.size() as i64;
    let pending: Vec<_> = (0..10i64)
        .map(|index| {
            group.start(move |group| {
                let mut values = vec![index; 3000];
                group.all_reduce(&mut values, ReduceOp::Sum)?;
                Ok(values)
            })
        })
        .collect();
    let mut between = [100];
    group.all_reduce(&mut between, ReduceOp::Sum)?;
    assert_same("all_reduce between", &between, &[100 * size]);
    for (index, pending) in pending.into_iter().enumerate() {
        assert_same("all_reduce in the background", &pending.wait()?, &vec![index as i64 * size; 3000]);
    }
    Ok(())
}

/// Messages with different tags may be received in another order than they were sent, but not messages with the same tag.
pub(super) fn messages_keep_order_per_tag(group: &Group) -> Result<()> {
    let last = group.size() - 1;
    if group.rank() == 0 {
        let sends = [(1, 10i32), (2, 20), (1, 11), (2, 21)];
        let pending: Vec<_> = sends
            .iter()
            .map(|&(tag, value)| {
                group.raw().start_send(value.to_ne_bytes(), crate::memory::DType::I32, last, tag)
            })
            .collect::<Result<_>>()?;
        if last == 0 {
            receive_by_tag(group)?;
        }
        pending.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
    } else if group.rank() == last {
        receive_by_tag(group)?;
    }
    group.barrier()
}

fn receive_by_tag(group: &Group) -> Result<()> {
    for (tag, expected) in [(2, 20), (2, 21), (1, 10), (1, 11)] {
        let mut value = [0i32];
        group.recv(&mut value, 0, tag)?;
        assert_same("recv by tag", &value, &[expected]);
    }
    Ok(())
}
