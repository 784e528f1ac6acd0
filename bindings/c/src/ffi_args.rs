//! Converts the pointer arguments of C to slices, strings and output parameters, checked as far as possible.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

use unisono::{DType, Error, Result};

/// The arguments of one call from C. Only [`crate::errors::guard`] creates one: while it exists, the call's pointers are as
/// the header requires, which is the responsibility of the C caller. Nothing derived from them outlives the call.
pub(crate) struct FfiArgs {
    pub(crate) operation: &'static str,
}

impl FfiArgs {
    pub(crate) fn new(operation: &'static str) -> FfiArgs {
        FfiArgs { operation }
    }

    /// An error in one of the call's arguments.
    pub(crate) fn usage_error(&self, expected: &str, received: impl Into<String>, advice: &str) -> Error {
        Error::usage(self.operation, expected, received, advice)
    }

    /// Elements to read.
    pub(crate) fn input(&self, pointer: *const c_void, count: usize, dtype: DType) -> Result<&[u8]> {
        self.slice(pointer.cast(), self.bytes_of(count, dtype)?, "values to read")
    }

    /// Elements to write or to modify.
    #[allow(clippy::mut_from_ref)] // The slice borrows from the pointer, not from `self`.
    pub(crate) fn output(&self, pointer: *mut c_void, count: usize, dtype: DType) -> Result<&mut [u8]> {
        let bytes = self.bytes_of(count, dtype)?;
        if bytes == 0 {
            return Ok(&mut []);
        }
        self.check_pointer(pointer, "a buffer to write to")?;
        // SAFETY: not null, and the C caller guarantees this many elements, not accessed by others during the call. All bit
        // patterns of plain numbers are valid, and bytes need no alignment.
        Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), bytes) })
    }

    /// A list of `count` items of a plain type.
    pub(crate) fn list<T: Pod>(&self, pointer: *const T, count: usize, what: &str) -> Result<&[T]> {
        if count > isize::MAX as usize / size_of::<T>().max(1) {
            return Err(self.too_long(count));
        }
        if !pointer.is_aligned() {
            return Err(self.usage_error(
                &format!("{what} at an aligned address"),
                format!("{pointer:p}"),
                "align it",
            ));
        }
        self.slice(pointer, count, what)
    }

    /// A structure that the C caller has filled.
    pub(crate) fn read<T: Pod>(&self, pointer: *const T, what: &str) -> Result<T> {
        Ok(self.out_param(pointer.cast_mut(), what)?.get())
    }

    /// A string that ends with a zero byte.
    pub(crate) fn text(&self, pointer: *const c_char, what: &str) -> Result<&str> {
        self.check_pointer(pointer, what)?;
        // SAFETY: not null, and the C caller guarantees a zero-terminated string.
        let text = unsafe { CStr::from_ptr(pointer) };
        text.to_str()
            .map_err(|_| self.usage_error(&format!("{what} in UTF-8"), format!("{text:?}"), "convert it"))
    }

    /// As [`FfiArgs::text`]; NULL means none.
    pub(crate) fn optional_text(&self, pointer: *const c_char, what: &str) -> Result<Option<&str>> {
        if pointer.is_null() { Ok(None) } else { self.text(pointer, what).map(Some) }
    }

    /// An output parameter.
    pub(crate) fn out_param<T: Pod>(&self, pointer: *mut T, what: &str) -> Result<OutParam<'_, T>> {
        self.check_pointer(pointer, what)?;
        Ok(OutParam { pointer, _args: self })
    }

    /// Elements to read and elements to write, which must not overlap; each with its own count.
    pub(crate) fn disjoint(
        &self,
        input: (*const c_void, usize),
        output: (*mut c_void, usize),
        dtype: DType,
    ) -> Result<(&[u8], &mut [u8])> {
        let (read, written) = (self.bytes_of(input.1, dtype)?, self.bytes_of(output.1, dtype)?);
        let (from, to) = (input.0 as usize, output.0 as usize);
        let overlap =
            read > 0 && written > 0 && from < to.saturating_add(written) && to < from.saturating_add(read);
        if overlap && from != 0 && to != 0 {
            return Err(self.usage_error(
                "an output apart from the input",
                "buffers that overlap",
                "use two buffers; only verbs with a single buffer work in place",
            ));
        }
        Ok((self.input(input.0, input.1, dtype)?, self.output(output.0, output.1, dtype)?))
    }

    /// Removes those of a program's arguments for which `take` returns true: the others move to the front in their order,
    /// and the count is reduced.
    pub(crate) fn take_arguments(
        &self,
        count: *mut c_int,
        arguments: *mut *mut c_char,
        mut take: impl FnMut(&str) -> bool,
    ) -> Result<()> {
        let out = self.out_param(count, "the number of arguments")?;
        let number = usize::try_from(out.get()).unwrap_or(0);
        self.check_pointer(arguments, "the arguments")?;
        // SAFETY: not null, and the C caller guarantees this many arguments, not accessed by others during the call.
        let arguments = unsafe { slice::from_raw_parts_mut(arguments, number) };
        let mut kept = 0;
        for position in 0..number {
            let taken = !arguments[position].is_null() && {
                // SAFETY: not null, and the C caller guarantees a zero-terminated string.
                let text = unsafe { CStr::from_ptr(arguments[position]) };
                take(&text.to_string_lossy())
            };
            if !taken {
                arguments.swap(kept, position);
                kept += 1;
            }
        }
        out.write(kept as c_int);
        Ok(())
    }

    fn bytes_of(&self, count: usize, dtype: DType) -> Result<usize> {
        let bytes = count.checked_mul(dtype.size());
        bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| self.too_long(count))
    }

    fn too_long(&self, count: usize) -> Error {
        self.usage_error("a count that fits in memory", count.to_string(), "is it a negative number?")
    }

    fn slice<T: Pod>(&self, pointer: *const T, count: usize, what: &str) -> Result<&[T]> {
        if count == 0 {
            return Ok(&[]);
        }
        self.check_pointer(pointer, what)?;
        // SAFETY: not null, aligned, and the C caller guarantees this many items, not modified by others during the call.
        Ok(unsafe { slice::from_raw_parts(pointer, count) })
    }

    fn check_pointer<T>(&self, pointer: *const T, what: &str) -> Result<()> {
        match pointer.is_null() {
            false => Ok(()),
            true => Err(self.usage_error(what, "NULL", "pass its address")),
        }
    }
}

/// A pointer to which a result is written.
pub(crate) struct OutParam<'a, T> {
    pointer: *mut T,
    _args: &'a FfiArgs,
}

impl<T: Pod> OutParam<'_, T> {
    /// The current value, for pointers whose target the C caller has initialised.
    fn get(&self) -> T {
        // SAFETY: not null, and the C caller guarantees an initialised value.
        unsafe { ptr::read_unaligned(self.pointer) }
    }

    pub(crate) fn write(self, value: T) {
        // SAFETY: not null, and the C caller guarantees the space; the address may be unaligned.
        unsafe { ptr::write_unaligned(self.pointer, value) }
    }
}

/// Plain old data: types with the same layout in C and Rust for which every bit pattern is valid.
pub(crate) trait Pod: Copy {}
impl Pod for u8 {}
impl Pod for i32 {}
impl Pod for i64 {}
impl Pod for u64 {}
impl Pod for usize {}
impl Pod for f32 {}
impl Pod for f64 {}
impl<T> Pod for *const T {}
impl<T> Pod for *mut T {}
