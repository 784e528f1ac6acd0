//! Executes a plan: gathers every rank's needed region into one padded array.

use std::sync::Arc;
use std::time::Duration;

use super::neighbours::StartedCall;
use super::packing::{PackArrays, ParcelTable, Transfers, UnpackArrays};
use super::plan::{HaloParcel, Plan};
use super::verbs;
use super::wire::{Neighbour, Wire};
use crate::error::{Error, Result};
use crate::memory::strided::{value_of, wide_size};
use crate::memory::{DType, Element};
use crate::transport::Call;
use crate::world::Group;

/// Rejects, as a counted call, an element type that exchanges do not take.
pub(super) fn check_type(group: &Group, dtype: DType) -> Result<()> {
    if dtype.has_kernels() {
        return Ok(());
    }
    group.skip_call();
    let expected = DType::KERNELS.map(DType::name).join(", ");
    let error = Error::usage("halo plan", expected, dtype.name(), "convert the array first");
    Err(error.at_rank(group.members()[group.rank()]))
}

/// Options of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeOptions {
    /// The element type.
    pub dtype: DType,
    /// The number of arrays that are exchanged together.
    pub fields: usize,
    /// Whether to allocate buffers in shared memory, if the ranks share some. Otherwise the exchange uses messages.
    pub direct: bool,
}

impl ExchangeOptions {
    /// One array of this type, over the fastest path available.
    pub fn of(dtype: DType) -> ExchangeOptions {
        ExchangeOptions { dtype, fields: 1, direct: true }
    }
}

/// A plan with the buffers to execute it repeatedly without allocating. Construction is collective, and all ranks make its
/// calls in the same order, as with every call on a group.
///
/// ```
/// use unisono::halo::{Boundary, Edges, Exchange, ExchangeOptions, Grid, Layout, Plan, Window};
/// use unisono::{DType, testing};
/// testing::spawn(2, |group| {
///     let grid = Grid::parse("x=2", 2).unwrap();
///     let ring = Layout::new(&grid, &[6], &[("x", 0)]).unwrap();
///     let windows = [Window { kernel: 3, padding: (1, 1), ..Window::IDENTITY }];
///     let edges = [Edges::both(Boundary::Periodic)];
///     let plan = Plan::window(&ring, &windows, &edges, None, group.rank()).unwrap();
///     let mut exchange = Exchange::new(&group, plan, ExchangeOptions::of(DType::F32)).unwrap();
///     let part: Vec<f32> = if group.rank() == 0 { vec![0.0, 1.0, 2.0] } else { vec![3.0, 4.0, 5.0] };
///     let mut padded = [0.0f32; 5];
///     exchange.forward(&part, &mut padded).unwrap();
///     assert_eq!(padded, if group.rank() == 0 { [5.0, 0.0, 1.0, 2.0, 3.0] } else { [2.0, 3.0, 4.0, 5.0, 0.0] });
/// });
/// ```
pub struct Exchange {
    pub(super) plan: Arc<Plan>,
    pub(super) group: Group,
    pub(super) dtype: DType,
    pub(super) fields: usize,
    pub(super) wire: Wire,
    /// For each neighbour, the index of its parcel in the plan's lists; `None` if there is none.
    pub(super) sends: Vec<Option<usize>>,
    pub(super) receives: Vec<Option<usize>>,
    pub(super) in_flight: Option<StartedCall>,
    /// Sums of half types, which are rounded once at the end.
    pub(super) sums: Vec<Vec<u8>>,
    fingerprint: u64,
}

impl Exchange {
    /// Allocates all buffers. Collective: every rank of the group passes its own part of the same plan.
    pub fn new(group: &Group, plan: impl Into<Arc<Plan>>, options: ExchangeOptions) -> Result<Exchange> {
        let plan = plan.into();
        let ExchangeOptions { dtype, fields, direct } = options;
        let (ranks, rank) = (plan.inputs().grid().size(), plan.rank());
        if (ranks, rank) != (group.size(), group.rank()) || fields == 0 {
            group.skip_call();
            let expected =
                format!("a plan for rank {} of {}, and one field or more", group.rank(), group.size());
            let received = format!("one for rank {rank} of {ranks}, and {fields}");
            let error = Error::usage("halo plan", expected, received, "make the grid as large as the group");
            return Err(error.at_rank(group.members()[group.rank()]));
        }
        check_type(group, dtype)?;
        let element = dtype.size() * fields;
        let most = |parcel: Option<&HaloParcel>| parcel.map_or(0, |parcel| parcel.elements * element);
        let find =
            |parcels: &[HaloParcel], member: usize| parcels.iter().position(|parcel| parcel.peer == member);
        let mut neighbours = Vec::new();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for member in 0..ranks {
            let (send, receive) = (find(&plan.sends, member), find(&plan.receives, member));
            if send.is_none() && receive.is_none() {
                continue;
            }
            // The adjoint sends what forward receives, through the same buffers.
            let bytes = most(send.map(|at| &plan.sends[at])).max(most(receive.map(|at| &plan.receives[at])));
            neighbours.push(Neighbour { member, to: bytes, from: bytes });
            sends.push(send);
            receives.push(receive);
        }
        let fingerprint = plan.fingerprint() ^ (fields as u64) << 8 ^ dtype as u64;
        let wire = Wire::new(group, neighbours, fingerprint, direct)?;
        let halves = wide_size(dtype) != dtype.size();
        let sums = if halves { vec![Vec::new(); fields] } else { Vec::new() };
        let group = group.clone();
        Ok(Exchange { plan, group, dtype, fields, wire, sends, receives, in_flight: None, sums, fingerprint })
    }

    /// The plan that this exchange executes.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether parcels go directly through shared memory.
    pub fn is_direct(&self) -> bool {
        self.wire.is_direct()
    }

    /// Sets the timeout of each call.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.group = self.group.with_timeout(timeout);
    }

    /// Counts a call that was rejected before it was made; see [`Group::skip_call`].
    pub fn skip_call(&self) {
        self.group.skip_call();
    }

    /// Gathers the needed region of one array.
    pub fn forward<T: Element>(&mut self, part: &[T], padded: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        self.forward_fields(&[bytemuck::cast_slice(part)], &mut [bytemuck::cast_slice_mut(padded)])
    }

    /// Gathers the needed regions of all fields, as bytes, from each rank's parts into the padded arrays.
    pub fn forward_fields(&mut self, parts: &[&[u8]], padded: &mut [&mut [u8]]) -> Result<()> {
        self.check_forward(parts, padded)?;
        let group = self.group.clone();
        group.call(verbs::FORWARD, |call| {
            let started = self.send(call, parts)?;
            self.fill_own(parts, padded);
            self.receive_padded(call, started, padded)
        })
    }

    /// Refreshes the halos of an array that is already in its padded form. Nothing else is written; constants beyond the
    /// edges keep their values.
    pub fn refresh<T: Element>(&mut self, padded: &mut [T]) -> Result<()> {
        self.check_type::<T>()?;
        self.refresh_fields(&mut [bytemuck::cast_slice_mut(padded)])
    }

    /// As [`Exchange::refresh`], for all fields.
    pub fn refresh_fields(&mut self, padded: &mut [&mut [u8]]) -> Result<()> {
        self.check_idle()?;
        self.check_padded(padded)?;
        let plan = self.plan.clone();
        let Some(in_place) = &plan.in_place else {
            let expected = "a window whose padded arrays hold all of each part";
            return Err(self.reject(
                expected,
                "one that leaves some out",
                "use forward with a part of its own",
            ));
        };
        let (group, element) = (self.group.clone(), self.dtype.size());
        group.call(verbs::FORWARD, |call| {
            let started = StartedCall { verb: verbs::FORWARD, number: call.number };
            let terms = (started, self.dtype, self.fingerprint);
            let transfers = Transfers::forward(&plan, (&self.sends, &self.receives), (element, self.fields));
            let sends = Some(ParcelTable(&in_place.sends, &self.sends));
            let mut packer = UnpackArrays { transfers, in_place: sends, arrays: padded };
            self.wire.send(&group, call, terms, &mut packer, true)?;
            for array in packer.arrays.iter_mut() {
                in_place.local.iter().for_each(|pair| pair.copy_within(element, array));
            }
            self.wire.receive(&group, call, started, &mut packer, false)
        })
    }

    /// Begins to gather: sends what other ranks need, and fills what this rank has. The halos are undefined until
    /// [`Exchange::end`]; until then the caller may use the interior of `padded` and may change `parts`.
    pub fn begin(&mut self, parts: &[&[u8]], padded: &mut [&mut [u8]]) -> Result<()> {
        self.check_forward(parts, padded)?;
        let group = self.group.clone();
        let started = group.call(verbs::FORWARD, |call| {
            let started = self.send(call, parts)?;
            self.fill_own(parts, padded);
            Ok(started)
        })?;
        self.in_flight = Some(started);
        Ok(())
    }

    /// Completes what `begin` or `begin_adjoint` started, with the same outputs.
    pub fn end(&mut self, outputs: &mut [&mut [u8]]) -> Result<()> {
        let Some(started) = self.in_flight else {
            return Err(self.reject("an exchange that has begun", "none", "call begin first"));
        };
        let group = self.group.clone();
        let is_adjoint = started.verb == verbs::ADJOINT;
        if is_adjoint {
            self.check_parts(outputs)?
        } else {
            self.check_padded(outputs)?
        }
        self.in_flight = None;
        group.call(verbs::END, |call| match is_adjoint {
            true => self.receive_sums(call, started, outputs),
            false => self.receive_padded(call, started, outputs),
        })
    }

    fn check_forward(&self, parts: &[&[u8]], padded: &[&mut [u8]]) -> Result<()> {
        self.check_idle()?;
        self.check_parts(parts)?;
        self.check_padded(padded)
    }

    /// Sends the parcels that other ranks need.
    fn send(&mut self, call: &Call, parts: &[&[u8]]) -> Result<StartedCall> {
        let started = StartedCall { verb: verbs::FORWARD, number: call.number };
        let Exchange { plan, group, wire, sends, receives, dtype, fields, fingerprint, .. } = self;
        let transfers = Transfers::forward(plan, (sends, receives), (dtype.size(), *fields));
        let mut packer = PackArrays { transfers, arrays: parts };
        wire.send(group, call, (started, *dtype, *fingerprint), &mut packer, false)?;
        Ok(started)
    }

    /// Copies this rank's own elements, and fills the constants beyond the edges.
    fn fill_own(&self, parts: &[&[u8]], padded: &mut [&mut [u8]]) {
        let element = self.dtype.size();
        for (part, padded) in parts.iter().zip(padded.iter_mut()) {
            self.plan.local.iter().for_each(|pair| pair.copy_out(element, part, padded));
        }
        for (pair, value) in &self.plan.fills {
            let value = value_of(self.dtype, *value);
            padded.iter_mut().for_each(|array| pair.fill(element, array, &value));
        }
    }

    fn receive_padded(&mut self, call: &Call, started: StartedCall, padded: &mut [&mut [u8]]) -> Result<()> {
        let Exchange { plan, group, wire, sends, receives, dtype, fields, .. } = self;
        let transfers = Transfers::forward(plan, (sends, receives), (dtype.size(), *fields));
        wire.receive(
            group,
            call,
            started,
            &mut UnpackArrays { transfers, in_place: None, arrays: padded },
            false,
        )
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn check_type<T: Element>(&self) -> Result<()> {
        match T::DTYPE == self.dtype {
            true => Ok(()),
            false => {
                let expected = format!("{}, the type that it was made for", self.dtype);
                Err(self.reject(&expected, T::DTYPE.name(), "make an exchange for this type"))
            }
        }
    }

    pub(super) fn check_idle(&self) -> Result<()> {
        match self.in_flight {
            None => Ok(()),
            Some(_) => Err(self.reject("the end of what has begun", "a second begin", "call end first")),
        }
    }

    pub(super) fn check_parts(&self, parts: &[impl AsRef<[u8]>]) -> Result<()> {
        self.check_lengths(parts, self.plan.own().elements(), "parts")
    }

    pub(super) fn check_padded(&self, padded: &[impl AsRef<[u8]>]) -> Result<()> {
        self.check_lengths(padded, self.plan.needed().elements(), "padded arrays")
    }

    fn check_lengths(&self, arrays: &[impl AsRef<[u8]>], elements: usize, what: &str) -> Result<()> {
        let (count, bytes) = (arrays.len(), elements * self.dtype.size());
        let wrong = arrays.iter().map(|array| array.as_ref().len()).find(|&length| length != bytes);
        if count == self.fields && wrong.is_none() {
            return Ok(());
        }
        let expected = format!("{} {what} of {elements} x {}", self.fields, self.dtype);
        let received = match wrong {
            Some(length) => format!("one of {length} bytes"),
            None => format!("{count} of them"),
        };
        Err(self.reject(&expected, &received, "pass this rank's own part, whole and without gaps"))
    }

    /// The error for an invalid call. It counts as a call, because the other ranks may be making it.
    pub(super) fn reject(&self, expected: &str, received: &str, advice: &str) -> Error {
        self.group.skip_call();
        let rank = self.group.members()[self.group.rank()];
        Error::usage("halo", expected, received, advice).at_rank(rank)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(started) = self.in_flight {
            let came = if started.verb == verbs::ADJOINT { &self.sends } else { &self.receives };
            self.wire.cancel(|neighbour| usize::from(came[neighbour].is_some()));
        }
    }
}
