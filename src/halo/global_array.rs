//! An array distributed over ranks: its layout, how it is scattered and gathered, and its parts with their halos.

use super::exchange::{Exchange, ExchangeOptions};
use super::{Edges, Layout, Plan, Region, Window};
use crate::error::{Error, Result};
use crate::memory::Element;
use crate::world::Group;

/// An array that is distributed over the ranks of a group.
///
/// ```
/// use unisono::halo::{GlobalArray, Grid, Layout};
/// use unisono::testing;
/// testing::spawn(4, |group| {
///     let grid = Grid::parse("h=2,w=2", 4).unwrap();
///     let image = GlobalArray::new(&group, Layout::new(&grid, &[5, 6], &[("h", 0), ("w", 1)]).unwrap()).unwrap();
///     let whole: Vec<i32> = (0..30).collect();
///     let part = image.scatter((group.rank() == 2).then_some(&whole[..]), 2).unwrap();
///     assert_eq!(part.len(), image.region().elements());
///     assert_eq!(image.gather(&part, None).unwrap().unwrap(), whole);
/// });
/// ```
pub struct GlobalArray {
    group: Group,
    layout: Layout,
    region: Region,
}

impl GlobalArray {
    /// The array of this layout, on the ranks of this group.
    pub fn new(group: &Group, layout: Layout) -> Result<GlobalArray> {
        if layout.grid().size() != group.size() {
            let expected = format!("a grid of {} ranks, as many as the group has", group.size());
            let received = format!("{} ({} ranks)", layout.grid(), layout.grid().size());
            let error =
                Error::usage("global array", expected, received, "change an axis, or the number of ranks");
            return Err(error.at_rank(group.members()[group.rank()]));
        }
        let region = layout.region(group.rank());
        Ok(GlobalArray { group: group.clone(), layout, region })
    }

    /// The layout: which rank has which part.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The region of indices that this rank has.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The local index of an element of the global array; `None` if another rank has it.
    pub fn to_local(&self, index: &[usize]) -> Option<Vec<usize>> {
        let signed: Vec<i64> = index.iter().map(|&index| index as i64).collect();
        let inside = index.len() == self.region.dimensions() && self.region.contains(&signed);
        inside
            .then(|| index.iter().zip(self.region.start()).map(|(&at, start)| at - start as usize).collect())
    }

    /// The global index of an element of this rank's part.
    pub fn to_global(&self, index: &[usize]) -> Vec<usize> {
        index.iter().zip(self.region.start()).map(|(&at, start)| at + start as usize).collect()
    }

    /// Scatters the root's array: every rank gets its part.
    pub fn scatter<T: Element>(&self, whole: Option<&[T]>, root: usize) -> Result<Vec<T>> {
        let plan = Plan::scatter(&self.layout, root, self.group.rank())?;
        let whole = whole.filter(|_| self.group.rank() == root).unwrap_or_default();
        self.execute_once(plan, whole)
    }

    /// Gathers the parts at the root, or at every rank if there is no root.
    pub fn gather<T: Element>(&self, part: &[T], root: Option<usize>) -> Result<Option<Vec<T>>> {
        let plan = Plan::gather(&self.layout, root, self.group.rank())?;
        let whole = self.execute_once(plan, part)?;
        Ok((root.is_none() || root == Some(self.group.rank())).then_some(whole))
    }

    /// Repartitions the array: this rank's part in another layout.
    pub fn repartition<T: Element>(&self, part: &[T], to: &Layout) -> Result<Vec<T>> {
        self.execute_once(Plan::repartition(&self.layout, to, self.group.rank())?, part)
    }

    /// Executes a plan once, without buffers in shared memory: allocating them would not pay off.
    fn execute_once<T: Element>(&self, plan: Plan, input: &[T]) -> Result<Vec<T>> {
        let options = ExchangeOptions { direct: false, ..ExchangeOptions::of(T::DTYPE) };
        let mut output = vec![T::zeroed(); plan.needed().elements()];
        Exchange::new(&self.group, plan, options)?.forward(input, &mut output)?;
        Ok(output)
    }

    /// A view of this rank's part with the halos that its outputs need; it is reused without allocating.
    pub fn view<T: Element>(&self, windows: &[Window], edges: &[Edges]) -> Result<LocalView<T>> {
        let plan = Plan::window(&self.layout, windows, edges, None, self.group.rank())?;
        let (padded, part) =
            (vec![T::zeroed(); plan.needed().elements()], vec![T::zeroed(); plan.own().elements()]);
        Ok(LocalView {
            exchange: Exchange::new(&self.group, plan, ExchangeOptions::of(T::DTYPE))?,
            padded,
            part,
        })
    }
}

/// One rank's part of an array with the halos that a window needs. See [`GlobalArray::view`].
pub struct LocalView<T> {
    exchange: Exchange,
    padded: Vec<T>,
    part: Vec<T>,
}

impl<T: Element> LocalView<T> {
    /// The plan of the exchange.
    pub fn plan(&self) -> &Plan {
        self.exchange.plan()
    }

    /// The part with its halos, for the forward pass of a layer.
    pub fn get_fprop_view(&mut self, part: &[T]) -> Result<&[T]> {
        self.exchange.forward(part, &mut self.padded)?;
        Ok(&self.padded)
    }

    /// The gradient of the part, from gradients of padded parts: the sum of all ranks' contributions to this rank's
    /// elements.
    pub fn get_bprop_view(&mut self, gradient: &[T]) -> Result<&[T]> {
        self.exchange.adjoint(gradient, &mut self.part)?;
        Ok(&self.part)
    }
}
