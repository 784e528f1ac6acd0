//! scan: every rank gets the values of the ranks up to its own, reduced.
//!
//! Every rank folds one part of all ranks' values, once for each rank: the parts travel twice, as in all_reduce, and are folded in
//! rank order on every transport. Integers, whose sums do not depend on the order, travel less between many hosts: each host scans its
//! own values, and adds those of the hosts before, which it gets by recursive doubling.

use super::circulant::GATHER_LIMIT;
use super::levels::{LONG_WINDOW, windows};
use super::*;
use crate::memory::{copy, reduce};
use crate::world::Hierarchy;

pub(super) const SCAN: CollectiveVerb = CollectiveVerb {
    descriptor: VerbDescriptor::new(14, "scan"),
    lengths: Lengths::Equal,
    execute: |call, buffers| call.scan(buffers.single()?),
    jobs: None,
};

impl Group {
    /// Reduces the values of the members up to this one, in place: rank 0 keeps its values (their truth, 0 or 1, under a logical
    /// operation), and the last rank gets what [`Group::all_reduce`] returns.
    ///
    /// ```
    /// use unisono::{ReduceOp, testing};
    /// testing::spawn(3, |group| {
    ///     let mut rows = [10 + group.rank() as i64];
    ///     group.scan(&mut rows, ReduceOp::Sum).unwrap();
    ///     assert_eq!(rows, [[10], [21], [33]][group.rank()]);
    /// });
    /// ```
    pub fn scan<T: Element>(&self, values: &mut [T], operation: ReduceOp) -> Result<()> {
        self.raw().scan(bytemuck::cast_slice_mut::<T, u8>(values), T::DTYPE, operation)
    }
}

impl Raw<'_> {
    /// Reduces the values of the members up to this one, in place.
    pub fn scan<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(&SCAN, dtype).operation(operation);
        self.execute(&spec, Buffers::in_place(values.into()))
    }
}

impl HostCall<'_> {
    fn scan(&self, bytes: &mut [u8]) -> Result<()> {
        let group = self.group;
        if group.channel().is_some() {
            return self.scan_in_parts(bytes);
        }
        let levels = group.hierarchy(self.call)?;
        let in_order = levels.is_none_or(|levels| levels.hosts.iter().flatten().copied().eq(0..group.size()));
        match self.has_many_hosts(levels) {
            true if in_order && self.spec.dtype.is_exact() => windows(bytes.len(), LONG_WINDOW)
                .try_for_each(|window| self.scan_over_hosts(levels, &mut bytes[window])),
            true if bytes.len() * group.size() <= GATHER_LIMIT => self.scan_by_gathering(bytes),
            _ => self.scan_in_parts(bytes),
        }
    }

    /// Every rank gets all values and folds those that it needs, in rank order.
    fn scan_by_gathering(&self, bytes: &mut [u8]) -> Result<()> {
        let (dtype, operation) = self.spec.reduction();
        let all = self.gather_values(bytes)?;
        let sources: Vec<*const u8> =
            (0..=self.group.rank()).map(|rank| all[rank * bytes.len()..].as_ptr()).collect();
        let target = bytes.as_mut_ptr();
        // SAFETY: `all` has as many bytes for every rank as the target, which is separate memory.
        unsafe { reduce::combine(dtype, operation, bytes.len() / dtype.size(), &sources, &[target]) };
        Ok(())
    }

    /// The ranks of each host follow each other.
    fn scan_over_hosts(&self, levels: Option<&Hierarchy>, values: &mut [u8]) -> Result<()> {
        if let Some(levels) = levels {
            return self.scan_in_levels(levels, values);
        }
        let ranks: Vec<usize> = (0..self.group.size()).collect();
        let before = self.exclusive_scan(&ranks, self.group.rank(), values)?;
        self.fold_before(before.as_deref(), values);
        Ok(())
    }

    /// The last rank of a host has the total of the host. If all hosts have equally many ranks, each of them scans one part of the
    /// totals over its rail.
    fn scan_in_levels(&self, levels: &Hierarchy, values: &mut [u8]) -> Result<()> {
        let (dtype, operation) = self.spec.reduction();
        let (size, index, host) =
            (levels.local.size(), levels.local.rank(), levels.host_of[self.group.rank()]);
        let local = self.group.step_of(self.call, &levels.local);
        let steps = || local.raw().steps_of(self.signature);
        steps().scan(&mut *values, dtype, operation)?;
        let (count, last, has_rails) = (values.len() / dtype.size(), size - 1, rails::has_rails(levels));
        let counts = match has_rails {
            true => balanced_counts(count, size),
            false => (0..size).map(|index| if index == last { count } else { 0 }).collect(),
        };
        let mut part = vec![0; counts[index] * dtype.size()];
        let total = (index == last).then_some(&*values);
        steps().scatter(total, &counts, &mut part[..], dtype, last)?;
        let mut before = None;
        if has_rails || index == last {
            let on_rail = |ranks: &Vec<usize>| ranks[if has_rails { index } else { ranks.len() - 1 }];
            let rail: Vec<usize> = levels.hosts.iter().map(on_rail).collect();
            before = self.exclusive_scan(&rail, host, &part)?;
        }
        if host > 0 {
            let mut all = vec![0; values.len()];
            steps().all_gather(before.as_deref().unwrap_or(&[]), &mut all[..], &counts, dtype)?;
            self.fold_before(Some(&all), values);
        }
        Ok(())
    }

    /// The reduction of the values of these ranks before the caller, which is at position `me`; `None` at the first. Recursive doubling
    /// (Hillis and Steele 1986): in step k a rank sends the reduction of the last 2^k ranks up to itself to the rank 2^k ahead.
    fn exclusive_scan(&self, ranks: &[usize], me: usize, values: &[u8]) -> Result<Option<Vec<u8>>> {
        let (mut last, mut received) = (vec![0; values.len()], vec![0; values.len()]);
        copy(values, &mut last);
        let mut before: Option<Vec<u8>> = None;
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2));
        for distance in distances.take_while(|&distance| distance < ranks.len()) {
            let to = ranks.get(me + distance);
            let sends = to.map(|&to| Outgoing { to, bytes: &last }).into_iter().collect();
            let from = me.checked_sub(distance).map(|from| ranks[from]);
            let receives = from.map(|from| Incoming { from, bytes: &mut received }).into_iter().collect();
            self.group.exchange(self.call, &self.match_key(), sends, receives)?;
            if from.is_some() {
                match &mut before {
                    Some(before) => self.fold_before(Some(&received), before),
                    None => {
                        let mut first = vec![0; values.len()];
                        copy(&received, &mut first);
                        before = Some(first);
                    }
                }
                self.fold_before(Some(&received), &mut last);
            }
        }
        Ok(before)
    }

    /// Each rank folds one part of all ranks' values, once for each rank.
    fn scan_in_parts(&self, bytes: &mut [u8]) -> Result<()> {
        let (size, element) = (self.group.size(), self.spec.dtype.size());
        let (dtype, operation) = self.spec.reduction();
        let counts = balanced_counts(bytes.len() / element, size);
        let count = counts[self.group.rank()];
        let (parts, rows) = (byte_ranges(&counts, element), byte_ranges(&vec![count; size], element));
        let mut table = vec![0u8; count * element * size];
        self.exchange_parts((bytes, &parts), (&mut table, &rows))?;
        let start = table.as_mut_ptr();
        let row = |member: usize| start.wrapping_add(member * count * element);
        // From the last row up: a row is replaced when no later one needs it.
        for last in (0..size).rev() {
            let sources: Vec<*const u8> = (0..=last).map(|member| row(member).cast_const()).collect();
            // SAFETY: every row has `count` elements of the table, which nothing else uses; the target is the last source.
            unsafe { reduce::combine(dtype, operation, count, &sources, &[row(last)]) };
        }
        self.exchange_parts((&table, &rows), (bytes, &parts))
    }

    /// Folds the values of earlier ranks in front of `values`. Without any, at rank 0, it only makes truth values of them, under a
    /// logical operation.
    fn fold_before(&self, earlier: Option<&[u8]>, values: &mut [u8]) {
        let ((dtype, operation), target) = (self.spec.reduction(), values.as_mut_ptr());
        let sources: Vec<*const u8> =
            earlier.map(<[u8]>::as_ptr).into_iter().chain([target.cast_const()]).collect();
        // SAFETY: all sources have the length of the target, which is the last of them.
        unsafe { reduce::combine(dtype, operation, values.len() / dtype.size(), &sources, &[target]) };
    }
}
