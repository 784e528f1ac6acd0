//! Matrix transposition.

/// The side of the tiles that are transposed in registers.
const TILE: usize = 4;
/// The number of row elements that fill a cache line.
const LINE: usize = 16;

/// Transposes: `to[column][row] = from[row][column]`, with the row stride of each matrix.
pub(super) fn transpose<T: Copy>(
    (from, from_stride): (&[T], usize),
    [rows, columns]: [usize; 2],
    (to, to_stride): (&mut [T], usize),
) {
    let whole = [rows / TILE * TILE, columns / TILE * TILE];
    // Reads full cache lines, from few enough rows at a time for the hardware prefetcher, and writes full cache lines.
    for first_row in (0..whole[0]).step_by(LINE) {
        let some_rows = first_row..whole[0].min(first_row + LINE);
        for column in (0..whole[1]).step_by(TILE) {
            for row in some_rows.clone().step_by(TILE) {
                let (from, to) = (&from[row * from_stride + column..], &mut to[column * to_stride + row..]);
                exchange(from, from_stride, to, to_stride);
            }
        }
    }
    for column in 0..columns {
        let first = if column < whole[1] { whole[0] } else { 0 };
        for row in first..rows {
            to[column * to_stride + row] = from[row * from_stride + column];
        }
    }
}

/// Transposes one tile.
#[inline(always)]
fn exchange<T: Copy>(from: &[T], from_stride: usize, to: &mut [T], to_stride: usize) {
    let held: [[T; TILE]; TILE] =
        std::array::from_fn(|row| *from[row * from_stride..].first_chunk().expect("the tile is whole"));
    for column in 0..TILE {
        let to = to[column * to_stride..].first_chunk_mut().expect("the tile is whole");
        *to = std::array::from_fn::<T, TILE, _>(|row| held[row][column]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_at_its_place() {
        for (rows, columns) in [(1, 1), (4, 4), (7, 33), (16, 20), (5, 3), (0, 6), (6, 0)] {
            let (from_stride, to_stride) = (columns + 3, rows + 2);
            let from: Vec<usize> = (0..rows * from_stride).collect();
            let mut to = vec![usize::MAX; columns * to_stride];
            transpose((&from, from_stride), [rows, columns], (&mut to, to_stride));
            for (at, found) in to.iter().enumerate() {
                let (column, row) = (at / to_stride, at % to_stride);
                let expected = if row < rows { row * from_stride + column } else { usize::MAX };
                assert_eq!(*found, expected, "{rows} {columns} {at}");
            }
        }
    }
}
