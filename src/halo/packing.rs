//! What one exchange packs and unpacks: each neighbour's parcels, and the arrays they are packed from and unpacked to.

use super::plan::{HaloParcel, Plan};

/// Packs and unpacks the parcels of one exchange. A neighbour is given by its index among the neighbours. Packing and unpacking
/// resume at byte `done` of a message, stop at a row boundary, and return the byte they reached. An implementation for one
/// direction needs only one of the two.
pub(super) trait PackUnpack {
    /// Bytes to send to a neighbour, and bytes to receive from it.
    fn lengths(&self, neighbour: usize) -> (usize, usize);

    /// Packs at least `most` bytes, up to the next row boundary; `room` is the rest of the message.
    fn pack(&mut self, _neighbour: usize, done: usize, _most: usize, _room: &mut [u8]) -> usize {
        done
    }

    /// Unpacks the complete rows in `bytes`, the next bytes of the message.
    fn unpack(&mut self, _neighbour: usize, done: usize, _bytes: &[u8]) -> usize {
        done
    }
}

/// The parcels of a plan, and for each neighbour the index of its parcel.
#[derive(Clone, Copy)]
pub(super) struct ParcelTable<'a>(pub &'a [HaloParcel], pub &'a [Option<usize>]);

impl<'a> ParcelTable<'a> {
    pub fn get(&self, neighbour: usize) -> Option<&'a HaloParcel> {
        self.1[neighbour].map(|at| &self.0[at])
    }
}

/// The parcels to send and to receive, and the bytes per element and the fields that determine their lengths.
#[derive(Clone, Copy)]
pub(super) struct Transfers<'a> {
    pub to: ParcelTable<'a>,
    pub from: ParcelTable<'a>,
    pub element: usize,
    pub fields: usize,
}

impl<'a> Transfers<'a> {
    /// The transfers of a plan's forward exchange; `sends` and `receives` map neighbours to parcels.
    pub fn forward(
        plan: &'a Plan,
        (sends, receives): (&'a [Option<usize>], &'a [Option<usize>]),
        (element, fields): (usize, usize),
    ) -> Transfers<'a> {
        let (to, from) = (ParcelTable(&plan.sends, sends), ParcelTable(&plan.receives, receives));
        Transfers { to, from, element, fields }
    }

    /// The transfers of the adjoint.
    pub fn reversed(self) -> Transfers<'a> {
        Transfers { to: self.from, from: self.to, ..self }
    }

    pub fn lengths(&self, neighbour: usize) -> (usize, usize) {
        let bytes =
            |parcel: Option<&HaloParcel>| parcel.map_or(0, |one| one.bytes(self.element, self.fields));
        (bytes(self.to.get(neighbour)), bytes(self.from.get(neighbour)))
    }
}

/// Packs from arrays.
pub(super) struct PackArrays<'a, A> {
    pub transfers: Transfers<'a>,
    pub arrays: &'a [A],
}

impl<A: AsRef<[u8]>> PackUnpack for PackArrays<'_, A> {
    fn lengths(&self, neighbour: usize) -> (usize, usize) {
        self.transfers.lengths(neighbour)
    }

    fn pack(&mut self, neighbour: usize, done: usize, most: usize, room: &mut [u8]) -> usize {
        let Some(parcel) = self.transfers.to.get(neighbour) else { return done };
        parcel.pack(self.transfers.element, self.arrays, (done, most), room)
    }
}

/// Unpacks to arrays. If the same arrays are packed too, `in_place` locates the parcels to send in them.
pub(super) struct UnpackArrays<'a, 'b> {
    pub transfers: Transfers<'a>,
    pub in_place: Option<ParcelTable<'a>>,
    pub arrays: &'a mut [&'b mut [u8]],
}

impl PackUnpack for UnpackArrays<'_, '_> {
    fn lengths(&self, neighbour: usize) -> (usize, usize) {
        self.transfers.lengths(neighbour)
    }

    fn pack(&mut self, neighbour: usize, done: usize, most: usize, room: &mut [u8]) -> usize {
        let Some(parcel) = self.in_place.and_then(|in_place| in_place.get(neighbour)) else { return done };
        parcel.pack(self.transfers.element, self.arrays, (done, most), room)
    }

    fn unpack(&mut self, neighbour: usize, done: usize, bytes: &[u8]) -> usize {
        let Some(parcel) = self.transfers.from.get(neighbour) else { return done };
        parcel.unpack(self.transfers.element, self.arrays, done, bytes)
    }
}

/// Complete parcels that a closure packs: their lengths, and the closure.
pub(super) struct PackWith<L, P>(pub L, pub P);

impl<L: Fn(usize) -> (usize, usize), P: FnMut(usize, &mut [u8])> PackUnpack for PackWith<L, P> {
    fn lengths(&self, neighbour: usize) -> (usize, usize) {
        self.0(neighbour)
    }

    fn pack(&mut self, neighbour: usize, done: usize, _most: usize, room: &mut [u8]) -> usize {
        self.1(neighbour, room);
        done + room.len()
    }
}

/// Complete parcels that a closure unpacks.
pub(super) struct UnpackWith<L, U>(pub L, pub U);

impl<L: Fn(usize) -> usize, U: FnMut(usize, &[u8])> PackUnpack for UnpackWith<L, U> {
    fn lengths(&self, neighbour: usize) -> (usize, usize) {
        (0, self.0(neighbour))
    }

    fn unpack(&mut self, neighbour: usize, done: usize, bytes: &[u8]) -> usize {
        self.1(neighbour, bytes);
        done + bytes.len()
    }
}
