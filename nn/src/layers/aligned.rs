//! A buffer aligned to a cache line.

use std::ops::{Deref, DerefMut, Range};

use crate::number::Number;

/// The size of a cache line, and of the widest registers, in bytes.
pub(super) const LINE: usize = 64;

/// A buffer that starts at a cache line: loading an aligned register from it touches one line, not two.
#[derive(Debug)]
pub(super) struct Aligned<T> {
    numbers: Vec<T>,
    used: Range<usize>,
}

impl<T: Number> Aligned<T> {
    pub(super) fn zeros(length: usize) -> Aligned<T> {
        let room = LINE / size_of::<T>();
        let numbers = vec![T::ZERO; length + room];
        let first = numbers.as_ptr().align_offset(LINE).min(room);
        Aligned { numbers, used: first..first + length }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.numbers[self.used.clone()]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.used.clone()]
    }
}
