//! Executes a plan on arrays in CUDA memory.

use std::sync::Arc;
use std::time::Duration;

use super::all_or_none::all_or_none;
use super::builder::ProgramBuilder;
use super::device_transport::HaloCallContext;
use super::direction::{BufferMode, Direction, ExchangeSetup, Streams};
use super::job::ARRAYS;
use crate::cuda::{Device, Span};
use crate::error::{Error, Result};
use crate::halo::exchange::check_type;
use crate::halo::neighbours::StartedCall;
use crate::halo::verbs;
use crate::halo::{ExchangeOptions, Plan};
use crate::transport::{Call, Verb};
use crate::world::Group;

/// A plan for arrays in CUDA memory, with the buffers to execute it repeatedly without allocating: the counterpart of
/// [`Exchange`](super::super::Exchange), with [`Span`] in place of slices. Construction is collective, each rank passes its
/// own device, and all ranks make its calls in the same order. Calls return when the device has finished the work.
///
/// Results are bitwise equal to those of the host exchange.
pub struct CudaExchange {
    setup: ExchangeSetup,
    forward: Direction,
    /// Created by the first call that needs it.
    adjoint: Option<Direction>,
    in_flight: Option<StartedCall>,
}

/// Distinguishes an exchange in CUDA memory from the same one in host memory.
const PLACE: u64 = 0x6375_6461_6861_6c6f;

impl CudaExchange {
    /// Allocates all buffers, on the device with this ordinal.
    pub fn new(
        group: &Group,
        plan: impl Into<Arc<Plan>>,
        options: ExchangeOptions,
        device: u32,
    ) -> Result<CudaExchange> {
        let plan = plan.into();
        let (ranks, rank) = (plan.inputs().grid().size(), plan.rank());
        let fields = options.fields;
        if (ranks, rank) != (group.size(), group.rank()) || fields == 0 || 2 * fields >= ARRAYS {
            group.skip_call();
            let (mine, size, most) = (group.rank(), group.size(), ARRAYS / 2 - 1);
            let expected = format!("a plan for rank {mine} of {size}, and one to {most} fields");
            let received = format!("one for rank {rank} of {ranks}, and {fields}");
            let error = Error::usage("halo plan", expected, received, "make the grid as large as the group");
            return Err(error.at_rank(group.members()[group.rank()]));
        }
        check_type(group, options.dtype)?;
        let place = Device::get(device).and_then(|device| Ok((Streams::new(&device)?, device)));
        let (streams, device) = all_or_none(group, place)?;
        let ExchangeOptions { dtype, direct, .. } = options;
        let fingerprint = plan.fingerprint() ^ (fields as u64) << 8 ^ dtype as u64 ^ PLACE;
        let group = group.clone();
        let builder = ProgramBuilder::new(plan, dtype, fields);
        let setup = ExchangeSetup { group, device, builder, fingerprint, direct, streams };
        let forward = setup.forward()?;
        Ok(CudaExchange { setup, forward, adjoint: None, in_flight: None })
    }

    /// The plan that this exchange executes.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.setup.builder.plan
    }

    /// Whether ranks read each other's device memory; otherwise parcels are staged through the host.
    pub fn is_direct(&self) -> bool {
        self.forward.is_direct()
    }

    /// Sets the timeout of each call.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.setup.group = self.setup.group.with_timeout(timeout);
    }

    /// Counts a call that was rejected before it was made; see [`Group::skip_call`].
    pub fn skip_call(&self) {
        self.setup.group.skip_call();
    }

    /// Gathers the needed regions of all fields, from each rank's parts into the padded arrays.
    pub fn forward(&mut self, parts: &[Span], padded: &[Span]) -> Result<()> {
        self.validate(parts, self.setup.builder.plan.own().elements(), "parts")?;
        self.validate(padded, self.setup.builder.plan.needed().elements(), "padded arrays")?;
        self.run(verbs::CUDA_FORWARD, BufferMode::OutOfPlace, (parts, padded), true)
    }

    /// Refreshes the halos of arrays that are already in their padded form; see
    /// [`Exchange::refresh`](super::super::Exchange::refresh).
    pub fn refresh(&mut self, padded: &[Span]) -> Result<()> {
        self.validate(padded, self.setup.builder.plan.needed().elements(), "padded arrays")?;
        if !self.forward.has_in_place() {
            let expected = "a window whose padded arrays hold all of each part";
            let advice = "use forward with a part of its own";
            return Err(self.reject(expected, "one that leaves some out", advice));
        }
        self.run(verbs::CUDA_FORWARD, BufferMode::InPlace, (padded, padded), true)
    }

    /// The adjoint of [`CudaExchange::forward`]: sums all ranks' contributions to each element, at its owner.
    pub fn adjoint(&mut self, padded: &[Span], parts: &[Span]) -> Result<()> {
        self.validate(padded, self.setup.builder.plan.needed().elements(), "padded arrays")?;
        self.validate(parts, self.setup.builder.plan.own().elements(), "parts")?;
        self.run(verbs::CUDA_ADJOINT, BufferMode::OutOfPlace, (padded, parts), true)
    }

    /// Begins to gather: sends what other ranks need, and fills what this rank has. The halos are undefined until
    /// [`CudaExchange::end`]; until then the caller may use the interior of `padded` and may change `parts`.
    pub fn begin(&mut self, parts: &[Span], padded: &[Span]) -> Result<()> {
        self.validate(parts, self.setup.builder.plan.own().elements(), "parts")?;
        self.validate(padded, self.setup.builder.plan.needed().elements(), "padded arrays")?;
        self.run(verbs::CUDA_FORWARD, BufferMode::OutOfPlace, (parts, padded), false)
    }

    /// Begins the adjoint: sends contributions to elements of other ranks, and sums the local ones.
    pub fn begin_adjoint(&mut self, padded: &[Span], parts: &[Span]) -> Result<()> {
        self.validate(padded, self.setup.builder.plan.needed().elements(), "padded arrays")?;
        self.validate(parts, self.setup.builder.plan.own().elements(), "parts")?;
        self.run(verbs::CUDA_ADJOINT, BufferMode::OutOfPlace, (padded, parts), false)
    }

    /// Completes what `begin` or `begin_adjoint` started, with the same outputs.
    pub fn end(&mut self, outputs: &[Span]) -> Result<()> {
        let Some(started) = self.in_flight else {
            return Err(self.reject("an exchange that has begun", "none", "call begin first"));
        };
        match started.verb == verbs::CUDA_ADJOINT {
            true => self.validate(outputs, self.setup.builder.plan.own().elements(), "parts")?,
            false => self.validate(outputs, self.setup.builder.plan.needed().elements(), "padded arrays")?,
        }
        self.in_flight = None;
        let CudaExchange { setup, forward, adjoint, .. } = self;
        let direction = chosen(forward, adjoint, started.verb);
        setup.group.call(verbs::END, |call| {
            // SAFETY: the lengths were checked, and the caller that made the spans vouches for the rest.
            unsafe { direction.end(setup, call_context(setup, call, started), outputs) }
        })
    }

    /// A complete call, or its beginning.
    fn run(
        &mut self,
        verb: Verb,
        mode: BufferMode,
        (inputs, outputs): (&[Span], &[Span]),
        whole: bool,
    ) -> Result<()> {
        if self.in_flight.is_some() {
            return Err(self.reject("the end of what has begun", "a second begin", "call end first"));
        }
        if verb == verbs::CUDA_ADJOINT && self.adjoint.is_none() {
            self.adjoint = Some(self.setup.adjoint()?);
        }
        let CudaExchange { setup, forward, adjoint, .. } = self;
        let direction = chosen(forward, adjoint, verb);
        let started = setup.group.call(verb, |call| {
            let started = StartedCall { verb, number: call.number };
            let call_context = call_context(setup, call, started);
            // SAFETY: the lengths were checked, and the caller that made the spans vouches for the rest.
            unsafe {
                direction.begin(setup, call_context, (mode, inputs, outputs))?;
                match whole {
                    true => direction.end(setup, call_context, outputs)?,
                    false => direction.release(setup, call_context)?,
                }
            }
            Ok(started)
        })?;
        self.in_flight = (!whole).then_some(started);
        Ok(())
    }

    fn validate(&self, spans: &[Span], elements: usize, what: &str) -> Result<()> {
        let ProgramBuilder { fields, dtype, .. } = &self.setup.builder;
        let device = self.setup.device.ordinal();
        let bytes = elements * dtype.size();
        let expected = || format!("{fields} {what} of {elements} x {dtype} on device {device}");
        if spans.len() != *fields {
            let advice = "pass as many as the exchange was made for";
            return Err(self.reject(&expected(), &format!("{} of them", spans.len()), advice));
        }
        let wrong = spans.iter().find(|span| span.bytes() != bytes || span.device() != device);
        match wrong {
            None => Ok(()),
            Some(span) => {
                let received = format!("one of {} bytes on device {}", span.bytes(), span.device());
                Err(self.reject(&expected(), &received, "pass this rank's own part, whole and without gaps"))
            }
        }
    }

    /// The error for an invalid call. It counts as a call, because the other ranks may be making it.
    fn reject(&self, expected: &str, received: &str, advice: &str) -> Error {
        self.setup.group.skip_call();
        let rank = self.setup.group.members()[self.setup.group.rank()];
        Error::usage("halo", expected, received, advice).at_rank(rank)
    }
}

fn chosen<'a>(
    forward: &'a mut Direction,
    adjoint: &'a mut Option<Direction>,
    verb: Verb,
) -> &'a mut Direction {
    match adjoint {
        Some(direction) if verb == verbs::CUDA_ADJOINT => direction,
        _ => forward,
    }
}

fn call_context<'a>(
    setup: &'a ExchangeSetup,
    call: &'a Call<'a>,
    started: StartedCall,
) -> HaloCallContext<'a> {
    HaloCallContext {
        group: &setup.group,
        call,
        started,
        dtype: setup.builder.dtype,
        fingerprint: setup.fingerprint,
    }
}

impl Drop for CudaExchange {
    fn drop(&mut self) {
        if let Some(started) = self.in_flight {
            chosen(&mut self.forward, &mut self.adjoint, started.verb).cancel();
        }
    }
}
