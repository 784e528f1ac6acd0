//! Headers that ranks exchange before arrays of unknown size: element type, memory space and shape.

use unisono::{DType, Error, Group, Result};

use crate::any_array::{AnyArray, mixed};

/// Maximum number of axes of an array of unknown size.
const AXES: usize = 8;
/// Numbers in a header: element type, memory space, number of axes, their lengths.
const NUMBERS: usize = 3 + AXES;
const BYTES: usize = NUMBERS * 8;

/// The element type, memory space and shape of an array that another rank sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayHeader {
    pub(crate) dtype: DType,
    pub(crate) is_cuda: bool,
    pub(crate) shape: Vec<usize>,
}

impl ArrayHeader {
    pub(crate) fn new(x: &AnyArray, shape: &[usize], operation: &str) -> Result<ArrayHeader> {
        if shape.len() > AXES {
            let received = format!("{} axes", shape.len());
            return Err(Error::usage(
                operation,
                format!("at most {AXES} axes"),
                received,
                "reshape the array first",
            ));
        }
        Ok(ArrayHeader { dtype: x.dtype(), is_cuda: x.is_cuda(), shape: shape.to_vec() })
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut numbers = [0; NUMBERS];
        numbers[0] = self.dtype as u64;
        numbers[1] = u64::from(self.is_cuda);
        numbers[2] = self.shape.len() as u64;
        for (number, &extent) in numbers[3..].iter_mut().zip(&self.shape) {
            *number = extent as u64;
        }
        let mut bytes = [0; BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8], operation: &str) -> Result<ArrayHeader> {
        let mut numbers = bytes.chunks_exact(8).map(|place| {
            let mut number = [0; 8];
            number.copy_from_slice(place);
            u64::from_ne_bytes(number) as usize
        });
        let dtype = numbers.next().and_then(|number| DType::from_number(number as u8));
        let is_cuda = numbers.next() == Some(1);
        let axes = numbers.next().filter(|&axes| axes <= AXES);
        match (dtype, axes) {
            (Some(dtype), Some(axes)) => {
                Ok(ArrayHeader { dtype, is_cuda, shape: numbers.take(axes).collect() })
            }
            _ => Err(Error::internal(operation, "a header that no rank can have sent")),
        }
    }

    /// The root's header, on every rank.
    pub(crate) fn broadcast(
        mine: Option<&ArrayHeader>,
        group: &Group,
        root: usize,
        operation: &str,
    ) -> Result<ArrayHeader> {
        let mut bytes = mine.map_or([0; BYTES], ArrayHeader::encode);
        group.raw().broadcast(&mut bytes, DType::U8, root)?;
        ArrayHeader::decode(&bytes, operation)
    }

    /// The headers of all ranks, in rank order; each rank contributes the same number of them.
    pub(crate) fn all_gather(
        mine: &[ArrayHeader],
        group: &Group,
        operation: &str,
    ) -> Result<Vec<ArrayHeader>> {
        let input: Vec<u8> = mine.iter().flat_map(ArrayHeader::encode).collect();
        let mut output = vec![0; input.len() * group.size()];
        group.raw().all_gather(&input, &mut output, &vec![input.len(); group.size()], DType::U8)?;
        let headers: Result<Vec<ArrayHeader>> =
            output.chunks_exact(BYTES).map(|bytes| ArrayHeader::decode(bytes, operation)).collect();
        headers.and_then(|headers| same_place(headers, mine.len(), operation))
    }
}

/// Fails, identically on every rank, if arrays are in different memory spaces; each rank has contributed `each` headers.
fn same_place(headers: Vec<ArrayHeader>, each: usize, operation: &str) -> Result<Vec<ArrayHeader>> {
    match headers.iter().position(|header| header.is_cuda != headers[0].is_cuda) {
        None => Ok(headers),
        Some(other) => {
            let place = |is_cuda| if is_cuda { "CUDA memory" } else { "host memory" };
            let here = format!("{} on rank 0", place(headers[0].is_cuda));
            let received = format!("{here} and {} on rank {}", place(!headers[0].is_cuda), other / each);
            Err(mixed(operation, received))
        }
    }
}
