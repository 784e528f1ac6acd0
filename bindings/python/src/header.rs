//! What ranks tell each other before arrays of unknown size travel: element type and shape, in a few numbers.

use unisono::{DType, Error, Group, Result};

/// The most axes that an array of unknown size may have.
const AXES: usize = 8;
/// Numbers in a header: element type, how many axes, their lengths.
const NUMBERS: usize = 2 + AXES;
const BYTES: usize = NUMBERS * 8;

/// The element type and shape of an array that another rank sends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl Header {
    pub(crate) fn new(dtype: DType, shape: &[usize], operation: &str) -> Result<Header> {
        if shape.len() > AXES {
            let received = format!("{} axes", shape.len());
            return Err(Error::usage(
                operation,
                format!("at most {AXES} axes"),
                received,
                "reshape the array first",
            ));
        }
        Ok(Header { dtype, shape: shape.to_vec() })
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut numbers = [0; NUMBERS];
        numbers[0] = self.dtype as u64;
        numbers[1] = self.shape.len() as u64;
        for (number, &extent) in numbers[2..].iter_mut().zip(&self.shape) {
            *number = extent as u64;
        }
        let mut bytes = [0; BYTES];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8], operation: &str) -> Result<Header> {
        let mut numbers = bytes.chunks_exact(8).map(|place| {
            let mut number = [0; 8];
            number.copy_from_slice(place);
            u64::from_ne_bytes(number) as usize
        });
        let dtype = numbers.next().and_then(|number| DType::from_number(number as u8));
        let axes = numbers.next().filter(|&axes| axes <= AXES);
        match (dtype, axes) {
            (Some(dtype), Some(axes)) => Ok(Header { dtype, shape: numbers.take(axes).collect() }),
            _ => Err(Error::internal(operation, "a header that no rank can have sent")),
        }
    }

    /// The root's header, on every rank.
    pub(crate) fn broadcast(
        mine: Option<&Header>,
        group: &Group,
        root: usize,
        operation: &str,
    ) -> Result<Header> {
        let mut bytes = mine.map_or([0; BYTES], Header::encode);
        group.raw().broadcast(&mut bytes, DType::U8, root)?;
        Header::decode(&bytes, operation)
    }

    /// Everybody's headers, in rank order; each rank brings the same number of them.
    pub(crate) fn all_gather(mine: &[Header], group: &Group, operation: &str) -> Result<Vec<Header>> {
        let input: Vec<u8> = mine.iter().flat_map(Header::encode).collect();
        let mut output = vec![0; input.len() * group.size()];
        group.raw().all_gather(&input, &mut output, &vec![input.len(); group.size()], DType::U8)?;
        output.chunks_exact(BYTES).map(|bytes| Header::decode(bytes, operation)).collect()
    }
}
