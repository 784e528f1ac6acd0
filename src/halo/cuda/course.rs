//! A course: one direction of a plan on the device, from packing to the last element that arrives.

use std::sync::Arc;

use super::super::plan::Parcel;
use super::draft::Draft;
use super::passage::{Errand, Passage};
use super::program::Program;
use super::together::together;
use crate::cuda::{Device, DeviceMemory, Span, Stream};
use crate::error::Result;
use crate::world::Group;

/// What courses are made for, and with.
pub(super) struct Terms {
    pub group: Group,
    pub device: Arc<Device>,
    pub draft: Draft,
    pub fingerprint: u64,
    /// Whether there shall be room in shared memory, should parcels go through the host.
    pub direct: bool,
    pub streams: Streams,
}

/// What is done before parcels travel, meanwhile, and when they are there.
pub(super) struct Course {
    passage: Passage,
    pack: Program,
    own: Program,
    arrived: Program,
    /// Packs and copies arrays that lie in their padded form already.
    within: Option<(Program, Program)>,
    /// Sums that wait for more.
    waiting: Option<DeviceMemory>,
}

/// The two streams of an exchange: one packs, so that it can be waited for while the other copies what stays here.
pub(super) struct Streams {
    pub packing: Stream,
    pub filling: Stream,
}

/// Which of the course's programs a call takes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arrays {
    Apart,
    Within,
}

impl Streams {
    /// Neighbours wait for what they do: it goes before the caller's own kernels.
    pub fn new(device: &Arc<Device>) -> Result<Streams> {
        Ok(Streams { packing: Stream::urgent(device)?, filling: Stream::urgent(device)? })
    }
}

impl Terms {
    fn passage(&self, sends: &[Parcel], receives: &[Parcel], fingerprint: u64) -> Result<Passage> {
        let lanes = self.draft.lanes(sends, receives);
        Passage::new(&self.group, &self.device, lanes, fingerprint, self.direct)
    }

    /// The course of `forward`: inputs are parts, outputs are padded arrays.
    pub fn forward(&self) -> Result<Course> {
        let (draft, plan) = (&self.draft, &self.draft.plan);
        let passage = self.passage(&plan.sends, &plan.receives, self.fingerprint)?;
        let pack = |parcels| draft.pack(parcels, |lane| passage.packed(lane));
        Ok(Course {
            pack: pack(&plan.sends),
            own: draft.own(),
            arrived: draft.unpack(|lane| passage.arrived(lane)),
            within: plan.within.as_ref().map(|within| (pack(&within.sends), draft.own_within())),
            waiting: None,
            passage,
        })
    }

    /// The course of the adjoint: inputs are padded arrays, outputs are parts.
    pub fn adjoint(&self) -> Result<Course> {
        let (draft, plan) = (&self.draft, &self.draft.plan);
        let passage = self.passage(&plan.receives, &plan.sends, !self.fingerprint)?;
        let (own, arrived, bytes) = draft.sums(|lane| passage.arrived(lane));
        let waiting = Some(together(&self.group, DeviceMemory::new(&self.device, bytes))?);
        let pack = draft.pack(&plan.receives, |lane| passage.packed(lane));
        Ok(Course { passage, pack, own, arrived, within: None, waiting })
    }
}

impl Course {
    pub fn is_direct(&self) -> bool {
        self.passage.is_direct()
    }

    pub fn has_within(&self) -> bool {
        self.within.is_some()
    }

    /// Packs and sends, and does what needs nobody else.
    ///
    /// # Safety
    /// The arrays are as long as the plan says and stay until the course is finished; nobody else touches them meanwhile.
    pub unsafe fn begin(
        &mut self,
        terms: &Terms,
        errand: Errand,
        (arrays, inputs, outputs): (Arrays, &[Span], &[Span]),
    ) -> Result<()> {
        let Streams { packing, filling } = &terms.streams;
        // Callers order their own work before this stream's.
        packing.follow(terms.device.stream())?;
        filling.follow(terms.device.stream())?;
        let addresses = self.addresses(inputs, outputs);
        let parity = self.passage.turn();
        let (pack, own) = match (&mut self.within, arrays) {
            (Some((pack, own)), Arrays::Within) => (pack, own),
            _ => (&mut self.pack, &mut self.own),
        };
        // SAFETY: boxes were checked to lie inside arrays of these lengths; neighbours have read the buffer of the
        // second-last call, which is filled here.
        let launched = unsafe {
            let packed = pack.launch((&terms.device, packing), terms.draft.dtype, &addresses, parity);
            packed.and_then(|()| own.launch((&terms.device, filling), terms.draft.dtype, &addresses, parity))
        };
        let sent = launched.and_then(|()| self.passage.send(errand, packing));
        if sent.is_err() {
            // Whatever went wrong, the caller's arrays are let go.
            let _ = packing.synchronize().and_then(|()| filling.synchronize());
        }
        sent
    }

    /// Waits until the inputs have been read.
    pub fn release(&self, terms: &Terms, errand: Errand) -> Result<()> {
        terms.streams.filling.wait(&|| errand.call.go_on())
    }

    /// Waits for the parcels and takes them in.
    ///
    /// # Safety
    /// As [`Course::begin`].
    pub unsafe fn end(&mut self, terms: &Terms, errand: Errand, outputs: &[Span]) -> Result<()> {
        let filling = &terms.streams.filling;
        let parity = self.passage.parity();
        let nothing = vec![Span::empty(0); outputs.len()];
        let addresses = self.addresses(&nothing, outputs);
        let taken = self.passage.receive(errand, filling).and_then(|()| {
            // SAFETY: parcels have arrived, and stay until this rank's next token.
            unsafe { self.arrived.launch((&terms.device, filling), terms.draft.dtype, &addresses, parity) }
        });
        if taken.is_err() {
            let _ = filling.synchronize();
        }
        taken.and_then(|()| self.passage.finish(errand, filling))
    }

    /// In the order in which programs count arrays.
    fn addresses(&self, inputs: &[Span], outputs: &[Span]) -> Vec<u64> {
        let waiting = self.waiting.as_ref().map(DeviceMemory::address);
        inputs.iter().chain(outputs).map(Span::address).chain(waiting).collect()
    }

    /// Gives up what was begun.
    pub fn abandon(&mut self) {
        self.passage.abandon();
    }
}
