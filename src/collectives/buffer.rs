//! The memory of a call: bytes of the host, or of a CUDA device.

use std::ops::Range;

use crate::cuda::Span;
use crate::error::{Error, Result};

/// Memory that a call reads.
///
/// ```
/// use unisono::{Buffer, DType, testing};
/// testing::spawn(2, |group| {
///     let (mine, mut all) = ([group.rank() as u8], [0; 2]);
///     group.raw().all_gather(Buffer::Host(&mine), &mut all, &[1, 1], DType::U8).unwrap();
///     assert_eq!(all, [0, 1]);
/// });
/// ```
#[derive(Clone, Copy)]
pub enum Buffer<'a> {
    /// Host memory.
    Host(&'a [u8]),
    /// Memory of a CUDA device.
    Device(Span),
}

/// Memory that a call writes.
///
/// ```
/// use unisono::{BufferMut, DType, ReduceOp, testing};
/// testing::spawn(2, |group| {
///     let mut bytes = 1.5f32.to_le_bytes();
///     group.raw().all_reduce(BufferMut::Host(&mut bytes), DType::F32, ReduceOp::Sum).unwrap();
///     assert_eq!(f32::from_le_bytes(bytes), 3.0);
/// });
/// ```
pub enum BufferMut<'a> {
    /// Host memory.
    Host(&'a mut [u8]),
    /// Memory of a CUDA device.
    Device(Span),
}

impl<'a, B: AsRef<[u8]> + ?Sized> From<&'a B> for Buffer<'a> {
    #[inline]
    fn from(bytes: &'a B) -> Buffer<'a> {
        Buffer::Host(bytes.as_ref())
    }
}

impl From<Span> for Buffer<'_> {
    fn from(span: Span) -> Self {
        Buffer::Device(span)
    }
}

impl<'a, B: AsMut<[u8]> + ?Sized> From<&'a mut B> for BufferMut<'a> {
    #[inline]
    fn from(bytes: &'a mut B) -> BufferMut<'a> {
        BufferMut::Host(bytes.as_mut())
    }
}

impl From<Span> for BufferMut<'_> {
    fn from(span: Span) -> Self {
        BufferMut::Device(span)
    }
}

/// All memory of one call on this rank, in one memory space.
pub(super) enum Buffers<'a> {
    InPlace(&'a mut [u8]),
    Separate(&'a [u8], &'a mut [u8]),
    /// An output and the range in it that already holds the input.
    OwnPart(&'a mut [u8], Range<usize>),
    /// An input and an output, which may be the same.
    Device(Span, Span),
}

impl<'a> Buffers<'a> {
    /// One buffer that is both input and output.
    pub fn in_place(values: BufferMut<'a>) -> Buffers<'a> {
        match values {
            BufferMut::Host(bytes) => Buffers::InPlace(bytes),
            BufferMut::Device(span) => Buffers::Device(span, span),
        }
    }

    /// An input and an output, where a rank without one of them passes `None`; fails if they are in different memory spaces.
    pub fn separate(
        input: Option<Buffer<'a>>,
        output: Option<BufferMut<'a>>,
    ) -> std::result::Result<Buffers<'a>, MixedMemory> {
        Ok(match (input, output) {
            (None, None) => Buffers::Separate(&[], &mut []),
            (Some(Buffer::Host(input)), None) => Buffers::Separate(input, &mut []),
            (None, Some(BufferMut::Host(output))) => Buffers::Separate(&[], output),
            (Some(Buffer::Host(input)), Some(BufferMut::Host(output))) => Buffers::Separate(input, output),
            (Some(Buffer::Device(input)), None) => Buffers::Device(input, Span::empty(input.device())),
            (None, Some(BufferMut::Device(output))) => Buffers::Device(Span::empty(output.device()), output),
            (Some(Buffer::Device(input)), Some(BufferMut::Device(output))) => Buffers::Device(input, output),
            _ => return Err(MixedMemory),
        })
    }

    /// Host memory that is both input and output.
    pub fn single(self) -> Result<&'a mut [u8]> {
        if let Buffers::InPlace(bytes) = self { Ok(bytes) } else { Err(no_form()) }
    }

    /// A separate input and output in host memory.
    pub fn pair(self) -> Result<(&'a [u8], &'a mut [u8])> {
        if let Buffers::Separate(input, output) = self { Ok((input, output)) } else { Err(no_form()) }
    }

    /// The lengths of input and output.
    #[inline]
    pub fn bytes(&self) -> (usize, usize) {
        match self {
            Buffers::InPlace(bytes) => (bytes.len(), bytes.len()),
            Buffers::Separate(input, output) => (input.len(), output.len()),
            Buffers::OwnPart(output, own) => (own.len(), output.len()),
            Buffers::Device(input, output) => (input.bytes(), output.bytes()),
        }
    }
}

fn no_form() -> Error {
    Error::internal("a collective", "it has no form for these buffers")
}

/// One buffer is in host memory, the other on a device.
pub(super) struct MixedMemory;
