//! Packs and unpacks parcels in chunks, from any row of a message to any other.

use std::ops::Range;

use super::box_pair::BoxPair;
use super::plan::HaloParcel;

impl HaloParcel {
    /// Bytes of a message with `fields` fields, one after the other.
    pub fn bytes(&self, element: usize, fields: usize) -> usize {
        self.elements * element * fields
    }

    /// Packs rows of a message from byte `done` on, until at least `most` bytes are packed. `room` is the message from byte
    /// `done` on. Returns the number of bytes of the message that are packed.
    pub fn pack(
        &self,
        element: usize,
        arrays: &[impl AsRef<[u8]>],
        (done, most): (usize, usize),
        room: &mut [u8],
    ) -> usize {
        let limit = done.saturating_add(most);
        self.walk(element, arrays.len(), (done, limit), usize::div_ceil, |field, pair, rows, bytes| {
            let room = &mut room[bytes.start - done..bytes.end - done];
            pair.pack(rows, element, arrays[field].as_ref(), room);
        })
    }

    /// Unpacks the complete rows in `bytes`, which begins at byte `done` of the message. Returns the number of bytes of the
    /// message that are unpacked; an incomplete last row has to wait.
    pub fn unpack(&self, element: usize, arrays: &mut [&mut [u8]], done: usize, bytes: &[u8]) -> usize {
        let (fields, limit) = (arrays.len(), done + bytes.len());
        self.walk(
            element,
            fields,
            (done, limit),
            |bytes, row| bytes / row,
            |field, pair, rows, place| {
                pair.unpack(rows, element, arrays[field], &bytes[place.start - done..place.end - done]);
            },
        )
    }

    /// Calls `visit` with the rows of each field and box that lie between two bytes of a message; `count` converts bytes to
    /// rows. Returns the byte that it reached.
    fn walk(
        &self,
        element: usize,
        fields: usize,
        (mut done, limit): (usize, usize),
        count: impl Fn(usize, usize) -> usize,
        mut visit: impl FnMut(usize, &BoxPair, Range<usize>, Range<usize>),
    ) -> usize {
        let size = self.elements * element;
        for field in done.checked_div(size).unwrap_or(fields)..fields {
            for pair in &self.boxes {
                let (place, row) = (pair.place(element), pair.row_bytes(element));
                let (start, end) = (field * size + place.start, field * size + place.end);
                if end <= done {
                    continue;
                }
                let first = (done - start) / row;
                let last = pair.rows().end.min(count(limit.saturating_sub(start), row));
                if last > first {
                    visit(field, pair, first..last, start + first * row..start + last * row);
                    done = start + last * row;
                }
                if done < end {
                    return done;
                }
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::box_pair::Line;
    use super::*;

    fn parcel() -> HaloParcel {
        let shape = [4, 5, 6];
        let mut parcel = HaloParcel::default();
        for (extents, starts) in [([2, 5, 3], [1, 0, 2]), ([1, 1, 1], [0, 4, 5]), ([4, 2, 6], [0, 3, 0])] {
            let lines = starts.map(Line::from);
            let pair = BoxPair::in_message(&extents, (&shape, &lines), parcel.elements);
            parcel.elements += pair.elements();
            parcel.boxes.push(pair);
        }
        parcel
    }

    #[test]
    fn pieces_of_any_size_make_the_message_and_are_put_where_they_belong() {
        let parcel = parcel();
        let fields: Vec<Vec<u8>> =
            (0..3u8).map(|field| (0..120).map(|at| 120 * (field % 2) + at).collect()).collect();
        let mut whole = vec![0; parcel.bytes(1, 3)];
        assert_eq!(parcel.pack(1, &fields, (0, usize::MAX), &mut whole), whole.len());
        for piece in [1, 2, 3, 7, 31, 100, 1000] {
            let mut message = vec![0; whole.len()];
            let mut arrays = vec![vec![255u8; 120]; 3];
            let mut slices: Vec<&mut [u8]> = arrays.iter_mut().map(|array| &mut array[..]).collect();
            let (mut packed, mut unpacked) = (0, 0);
            while packed < message.len() {
                let now = parcel.pack(1, &fields, (packed, piece), &mut message[packed..]);
                assert!(now >= message.len().min(packed + piece), "{now} from {packed} by {piece}");
                packed = now;
                // A partial row waits for the rest of it.
                let seen = packed.saturating_sub(2).max(unpacked);
                unpacked = parcel.unpack(1, &mut slices, unpacked, &message[unpacked..seen]);
                assert!(unpacked <= seen);
            }
            assert_eq!(parcel.unpack(1, &mut slices, unpacked, &message[unpacked..]), whole.len());
            assert_eq!(message, whole, "by {piece}");
            let mut again = vec![0; whole.len()];
            parcel.pack(1, &arrays, (0, usize::MAX), &mut again);
            assert_eq!(again, whole, "by {piece}");
        }
    }
}
