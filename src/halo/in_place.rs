//! The in-place adjoint, for callers that no longer need the padded arrays: it needs no other array and moves only the
//! halos.

use super::adjoint::SumArrays;
use super::exchange::Exchange;
use super::packing::{ParcelTable, Transfers};
use super::verbs;
use crate::error::Result;
use crate::memory::Element;
use crate::memory::strided::wide_size;

impl Exchange {
    /// As [`Exchange::adjoint`], with the same bits, but the sums replace the part inside `padded`; the values around it are
    /// unspecified afterwards. Requires a window whose padded arrays contain all of each part, and no half type.
    ///
    /// ```
    /// use unisono::halo::{Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
    /// use unisono::{DType, testing};
    /// testing::spawn(2, |group| {
    ///     let line = Layout::new(&Grid::parse("x=2", 2).unwrap(), &[4], &[("x", 0)]).unwrap();
    ///     let windows = [Window { kernel: 3, padding: (1, 1), ..Window::IDENTITY }];
    ///     let plan = Plan::window(&line, &windows, &[Edges::default()], None, group.rank()).unwrap();
    ///     let mut exchange = Exchange::new(&group, plan, ExchangeOptions::of(DType::F32)).unwrap();
    ///     let mut padded = [1.0f32; 4];
    ///     exchange.adjoint_within(&mut padded).unwrap();
    ///     assert_eq!(padded[1..3], if group.rank() == 0 { [1.0, 2.0] } else { [2.0, 1.0] });
    /// });
    /// ```
    pub fn adjoint_within<T: Element>(&mut self, padded: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        self.adjoint_fields_within(&mut [bytemuck::cast_slice_mut(padded)])
    }

    /// As [`Exchange::adjoint_within`], for all fields.
    pub fn adjoint_fields_within(&mut self, padded: &mut [&mut [u8]]) -> Result<()> {
        self.check_idle()?;
        self.check_padded(padded)?;
        let (plan, group, dtype) = (self.plan.clone(), self.group.clone(), self.dtype);
        let Some(in_place) = plan.in_place.as_ref().filter(|_| wide_size(dtype) == dtype.size()) else {
            let expected = "a window whose padded arrays hold all of each part, and no half type";
            return Err(self.reject(expected, &format!("another one, of {dtype}"), "use adjoint"));
        };
        group.call(verbs::ADJOINT, |call| {
            let started = self.send_padded(call, padded)?;
            for array in padded.iter_mut() {
                in_place.local.iter().for_each(|pair| pair.add_within(dtype, array));
            }
            let transfers =
                Transfers::forward(&plan, (&self.sends, &self.receives), (dtype.size(), self.fields));
            let transfers =
                Transfers { from: ParcelTable(&in_place.sends, &self.sends), ..transfers.reversed() };
            let mut packer = SumArrays { transfers, dtype, sums: &mut [], parts: padded };
            self.wire.receive(&group, call, started, &mut packer, true)
        })
    }
}
