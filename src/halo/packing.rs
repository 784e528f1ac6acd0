//! What travels in one exchange: which parcels go to which neighbour, and the arrays that they are packed from and unpacked to.

use super::plan::{HaloParcel, Plan};

/// The parcels of one exchange, by the number of the neighbour. Packing and unpacking go on from byte `done` of a message, stop
/// between rows, and say how far they came. A load that goes one way needs only one of them.
pub(super) trait PackUnpack {
    /// Bytes to a neighbour, and from it.
    fn lengths(&self, lane: usize) -> (usize, usize);

    /// Packs `most` bytes or a little more; `room` is the rest of the message.
    fn pack(&mut self, _lane: usize, done: usize, _most: usize, _room: &mut [u8]) -> usize {
        done
    }

    /// Unpacks what `bytes` has of the rest of the message.
    fn unpack(&mut self, _lane: usize, done: usize, _bytes: &[u8]) -> usize {
        done
    }
}

/// Parcels of a plan, and for each neighbour which of them is its own.
#[derive(Clone, Copy)]
pub(super) struct ParcelTable<'a>(pub &'a [HaloParcel], pub &'a [Option<usize>]);

impl<'a> ParcelTable<'a> {
    pub fn get(&self, lane: usize) -> Option<&'a HaloParcel> {
        self.1[lane].map(|at| &self.0[at])
    }
}

/// The parcels of both ways, and the bytes of an element and the fields that determine their length.
#[derive(Clone, Copy)]
pub(super) struct Transfers<'a> {
    pub to: ParcelTable<'a>,
    pub from: ParcelTable<'a>,
    pub element: usize,
    pub fields: usize,
}

impl<'a> Transfers<'a> {
    /// Those of a plan's forward exchange, where `sends` and `receives` say which parcel is whose.
    pub fn forward(
        plan: &'a Plan,
        (sends, receives): (&'a [Option<usize>], &'a [Option<usize>]),
        (element, fields): (usize, usize),
    ) -> Transfers<'a> {
        let (to, from) = (ParcelTable(&plan.sends, sends), ParcelTable(&plan.receives, receives));
        Transfers { to, from, element, fields }
    }

    /// Those of its adjoint.
    pub fn reversed(self) -> Transfers<'a> {
        Transfers { to: self.from, from: self.to, ..self }
    }

    pub fn lengths(&self, lane: usize) -> (usize, usize) {
        let bytes = |parcel: Option<&HaloParcel>| parcel.map_or(0, |one| one.bytes(self.element, self.fields));
        (bytes(self.to.get(lane)), bytes(self.from.get(lane)))
    }
}

/// Arrays that are packed.
pub(super) struct PackArrays<'a, A> {
    pub transfers: Transfers<'a>,
    pub arrays: &'a [A],
}

impl<A: AsRef<[u8]>> PackUnpack for PackArrays<'_, A> {
    fn lengths(&self, lane: usize) -> (usize, usize) {
        self.transfers.lengths(lane)
    }

    fn pack(&mut self, lane: usize, done: usize, most: usize, room: &mut [u8]) -> usize {
        let Some(parcel) = self.transfers.to.get(lane) else { return done };
        parcel.pack(self.transfers.element, self.arrays, (done, most), room)
    }
}

/// Arrays that are unpacked, and if they are packed too, where the parcels of that lie in them.
pub(super) struct UnpackArrays<'a, 'b> {
    pub transfers: Transfers<'a>,
    pub in_place: Option<ParcelTable<'a>>,
    pub arrays: &'a mut [&'b mut [u8]],
}

impl PackUnpack for UnpackArrays<'_, '_> {
    fn lengths(&self, lane: usize) -> (usize, usize) {
        self.transfers.lengths(lane)
    }

    fn pack(&mut self, lane: usize, done: usize, most: usize, room: &mut [u8]) -> usize {
        let Some(parcel) = self.in_place.and_then(|in_place| in_place.get(lane)) else { return done };
        parcel.pack(self.transfers.element, self.arrays, (done, most), room)
    }

    fn unpack(&mut self, lane: usize, done: usize, bytes: &[u8]) -> usize {
        let Some(parcel) = self.transfers.from.get(lane) else { return done };
        parcel.unpack(self.transfers.element, self.arrays, done, bytes)
    }
}

/// Whole parcels that somebody else packs: their lengths, and what packs one.
pub(super) struct PackWith<L, P>(pub L, pub P);

impl<L: Fn(usize) -> (usize, usize), P: FnMut(usize, &mut [u8])> PackUnpack for PackWith<L, P> {
    fn lengths(&self, lane: usize) -> (usize, usize) {
        self.0(lane)
    }

    fn pack(&mut self, lane: usize, done: usize, _most: usize, room: &mut [u8]) -> usize {
        self.1(lane, room);
        done + room.len()
    }
}

/// Whole parcels that somebody else unpacks.
pub(super) struct UnpackWith<L, U>(pub L, pub U);

impl<L: Fn(usize) -> usize, U: FnMut(usize, &[u8])> PackUnpack for UnpackWith<L, U> {
    fn lengths(&self, lane: usize) -> (usize, usize) {
        (0, self.0(lane))
    }

    fn unpack(&mut self, lane: usize, done: usize, bytes: &[u8]) -> usize {
        self.1(lane, bytes);
        done + bytes.len()
    }
}
