//! Sorting the rows or keys of a call by the part of the memory that holds them, so that each lock is acquired once.

/// Stable sort by group: a counting sort, two passes over the list; short lists are sorted by comparison instead. The result is
/// in `buffer`, which grows as needed.
pub(crate) fn sort_by_group<P: Copy + Default>(
    items: impl Iterator<Item = P> + Clone,
    groups: usize,
    group: impl Fn(&P) -> usize,
    buffer: &mut Vec<P>,
) -> &[P] {
    if let (few, Some(most)) = items.size_hint()
        && most * 8 < groups
    {
        buffer.clear();
        buffer.reserve(few);
        buffer.extend(items);
        buffer.sort_by_key(group);
        return buffer;
    }
    let mut starts = vec![0u32; groups + 1];
    items.clone().for_each(|item| starts[group(&item) + 1] += 1);
    for index in 1..starts.len() {
        starts[index] += starts[index - 1];
    }
    let count = starts[groups] as usize;
    if buffer.len() < count {
        buffer.resize(count, P::default());
    }
    for item in items {
        let place = &mut starts[group(&item)];
        buffer[*place as usize] = item;
        *place += 1;
    }
    &buffer[..count]
}
