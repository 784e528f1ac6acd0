//! One direction of a plan on the device, forward or adjoint: from packing to the last element that arrives.

use std::sync::Arc;

use super::super::plan::HaloParcel;
use super::all_or_none::all_or_none;
use super::builder::ProgramBuilder;
use super::device_transport::{DeviceTransport, HaloCallContext};
use super::program::DeviceProgram;
use crate::cuda::{Device, DeviceMemory, Span, Stream};
use crate::error::Result;
use crate::world::Group;

/// The resources that both directions of an exchange share.
pub(super) struct ExchangeSetup {
    pub group: Group,
    pub device: Arc<Device>,
    pub builder: ProgramBuilder,
    pub fingerprint: u64,
    /// Whether to allocate buffers in shared memory if parcels are staged through the host.
    pub direct: bool,
    pub streams: Streams,
}

/// The programs that run before parcels are sent, while they are in flight, and when they have arrived.
pub(super) struct Direction {
    transport: DeviceTransport,
    pack: DeviceProgram,
    own: DeviceProgram,
    arrived: DeviceProgram,
    /// Packs and copies arrays that are already in their padded form.
    in_place: Option<(DeviceProgram, DeviceProgram)>,
    /// Partial sums that wait for parcels.
    partial_sums: Option<DeviceMemory>,
}

/// The two streams of an exchange: the host waits for the one that packs while the other copies local elements.
pub(super) struct Streams {
    pub packing: Stream,
    pub filling: Stream,
}

/// Which of the direction's programs a call runs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BufferMode {
    OutOfPlace,
    InPlace,
}

impl Streams {
    /// High-priority streams: neighbours wait for this work, so it runs before the caller's own kernels.
    pub fn new(device: &Arc<Device>) -> Result<Streams> {
        Ok(Streams { packing: Stream::urgent(device)?, filling: Stream::urgent(device)? })
    }
}

impl ExchangeSetup {
    fn transport(
        &self,
        sends: &[HaloParcel],
        receives: &[HaloParcel],
        fingerprint: u64,
    ) -> Result<DeviceTransport> {
        let neighbours = self.builder.neighbours(sends, receives);
        DeviceTransport::new(&self.group, &self.device, neighbours, fingerprint, self.direct)
    }

    /// The direction of `forward`: inputs are parts, outputs are padded arrays.
    pub fn forward(&self) -> Result<Direction> {
        let (builder, plan) = (&self.builder, &self.builder.plan);
        let transport = self.transport(&plan.sends, &plan.receives, self.fingerprint)?;
        let pack = |parcels| builder.pack(parcels, |neighbour| transport.packed(neighbour));
        Ok(Direction {
            pack: pack(&plan.sends),
            own: builder.own(),
            arrived: builder.unpack(|neighbour| transport.arrived(neighbour)),
            in_place: plan.in_place.as_ref().map(|in_place| (pack(&in_place.sends), builder.own_in_place())),
            partial_sums: None,
            transport,
        })
    }

    /// The direction of the adjoint: inputs are padded arrays, outputs are parts.
    pub fn adjoint(&self) -> Result<Direction> {
        let (builder, plan) = (&self.builder, &self.builder.plan);
        let transport = self.transport(&plan.receives, &plan.sends, !self.fingerprint)?;
        let (own, arrived, bytes) = builder.sums(|neighbour| transport.arrived(neighbour));
        let partial_sums = Some(all_or_none(&self.group, DeviceMemory::new(&self.device, bytes))?);
        let pack = builder.pack(&plan.receives, |neighbour| transport.packed(neighbour));
        Ok(Direction { transport, pack, own, arrived, in_place: None, partial_sums })
    }
}

impl Direction {
    pub fn is_direct(&self) -> bool {
        self.transport.is_direct()
    }

    pub fn has_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Packs and sends, and runs everything that needs no other rank.
    ///
    /// # Safety
    /// The arrays have the lengths of the plan and stay valid until the direction has finished; nothing else accesses them
    /// meanwhile.
    pub unsafe fn begin(
        &mut self,
        setup: &ExchangeSetup,
        call_context: HaloCallContext,
        (mode, inputs, outputs): (BufferMode, &[Span], &[Span]),
    ) -> Result<()> {
        let Streams { packing, filling } = &setup.streams;
        // Callers order their own work before this stream's.
        packing.follow(setup.device.stream())?;
        filling.follow(setup.device.stream())?;
        let addresses = self.addresses(inputs, outputs);
        let parity = self.transport.flip_parity();
        let (pack, own) = match (&mut self.in_place, mode) {
            (Some((pack, own)), BufferMode::InPlace) => (pack, own),
            _ => (&mut self.pack, &mut self.own),
        };
        // SAFETY: boxes were checked to lie inside arrays of these lengths; neighbours have read the buffer of the call
        // before last, which is overwritten here.
        let launched = unsafe {
            let packed = pack.launch((&setup.device, packing), setup.builder.dtype, &addresses, parity);
            packed
                .and_then(|()| own.launch((&setup.device, filling), setup.builder.dtype, &addresses, parity))
        };
        let sent = launched.and_then(|()| self.transport.send(call_context, packing));
        if sent.is_err() {
            // Whatever went wrong, the device must no longer use the caller's arrays.
            let _ = packing.synchronize().and_then(|()| filling.synchronize());
        }
        sent
    }

    /// Waits until the inputs have been read.
    pub fn release(&self, setup: &ExchangeSetup, call_context: HaloCallContext) -> Result<()> {
        setup.streams.filling.wait(&|| call_context.call.check_wait())
    }

    /// Waits for the parcels and unpacks them.
    ///
    /// # Safety
    /// As [`Direction::begin`].
    pub unsafe fn end(
        &mut self,
        setup: &ExchangeSetup,
        call_context: HaloCallContext,
        outputs: &[Span],
    ) -> Result<()> {
        let filling = &setup.streams.filling;
        let parity = self.transport.parity();
        let nothing = vec![Span::empty(0); outputs.len()];
        let addresses = self.addresses(&nothing, outputs);
        let taken = self.transport.receive(call_context, filling).and_then(|()| {
            // SAFETY: parcels have arrived, and stay until this rank's next token.
            unsafe { self.arrived.launch((&setup.device, filling), setup.builder.dtype, &addresses, parity) }
        });
        if taken.is_err() {
            let _ = filling.synchronize();
        }
        taken.and_then(|()| self.transport.finish(call_context, filling))
    }

    /// Addresses in the order in which programs number arrays.
    fn addresses(&self, inputs: &[Span], outputs: &[Span]) -> Vec<u64> {
        let partial_sums = self.partial_sums.as_ref().map(DeviceMemory::address);
        inputs.iter().chain(outputs).map(Span::address).chain(partial_sums).collect()
    }

    /// Cancels a call that has begun.
    pub fn cancel(&mut self) {
        self.transport.cancel();
    }
}
