//! Call signatures of 32 bytes, which ranks compare to detect that they are not making the same call.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytemuck::{Pod, Zeroable};

use super::Verb;
use crate::memory::{DType, ReduceOp};

/// The part of a call on which all ranks must agree.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable, Default)]
#[repr(C)]
pub(crate) struct Signature {
    verb: u8,
    dtype: u8,
    operation: u8,
    /// [`DETERMINISTIC`], [`ON_DEVICE`].
    flags: u8,
    root: u32,
    /// Element count; [`Signature::VARIES`] where ranks may differ.
    count: u64,
    number: u64,
    /// A fingerprint of how the elements are partitioned between ranks.
    parts: u64,
}

const NO_ROOT: u32 = u32::MAX;

const DETERMINISTIC: u8 = 1;
const ON_DEVICE: u8 = 2;

impl Signature {
    /// The count of calls in which ranks may pass different lengths.
    pub const VARIES: u64 = u64::MAX;

    pub fn new(verb: Verb, number: u64) -> Signature {
        Signature { verb: verb.number(), number, root: NO_ROOT, ..Signature::default() }
    }

    pub fn is(&self, verb: Verb) -> bool {
        self.verb == verb.number()
    }

    /// The same signature with the receiver's verb: both ends of a message carry the sender's signature.
    pub fn as_received(mut self) -> Signature {
        if self.is(Verb::SEND) {
            self.verb = Verb::RECV.number();
        }
        self
    }

    pub fn of(mut self, dtype: DType, count: u64) -> Signature {
        (self.dtype, self.count) = (dtype as u8, count);
        self
    }

    pub fn operation(mut self, operation: ReduceOp) -> Signature {
        self.operation = operation as u8;
        self
    }

    /// Partitions the elements by these counts, the same on all ranks.
    pub fn parts(mut self, counts: &[usize]) -> Signature {
        let mut hasher = DefaultHasher::new();
        counts.hash(&mut hasher);
        self.parts = hasher.finish();
        self
    }

    /// Identifies the data movement by the fingerprint of a plan, the same on all ranks.
    pub fn plan(mut self, fingerprint: u64) -> Signature {
        self.parts = fingerprint;
        self
    }

    pub fn deterministic(mut self, deterministic: bool) -> Signature {
        self.flags |= if deterministic { DETERMINISTIC } else { 0 };
        self
    }

    /// Marks the elements as being in device memory.
    pub fn on_device(mut self, on_device: bool) -> Signature {
        self.flags |= if on_device { ON_DEVICE } else { 0 };
        self
    }

    pub fn root(mut self, root: usize) -> Signature {
        self.root = root as u32;
        self
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = Verb::from_number(self.verb).descriptor();
        match verb {
            Some(verb) => f.write_str(verb.name)?,
            None => write!(f, "an unknown call (number {})", self.verb)?,
        }
        if self.number > 0 {
            write!(f, " #{}", self.number)?;
        }
        if verb.is_some_and(|verb| !verb.has_sizes) {
            return Ok(());
        }
        if let Some(operation) = ReduceOp::from_number(self.operation) {
            write!(f, " ({operation})")?;
        }
        if let Some(dtype) = DType::from_number(self.dtype) {
            match self.count {
                Signature::VARIES => write!(f, " of {dtype}")?,
                count => write!(f, " of {count} x {dtype}")?,
            }
        }
        if self.parts != 0 {
            write!(f, " in parts {:04x}", self.parts as u16)?;
        }
        if self.flags & ON_DEVICE != 0 {
            f.write_str(" in CUDA memory")?;
        }
        if self.flags & DETERMINISTIC != 0 {
            f.write_str(", deterministic")?;
        }
        if self.root != NO_ROOT {
            write!(f, " with root {}", self.root)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
