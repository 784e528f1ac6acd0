//! The collectives on bytes, for bindings: each verb describes its call in its own file, and one function here executes it.

use std::ops::Range;
use std::sync::Arc;

use super::buffer::{Buffer, BufferMut, Buffers};
use super::spec::{BufferSide, CollectiveSpec};
use crate::cuda::Event;
use crate::error::Result;
use crate::transport::{Call, Incoming, MatchKey, Outgoing, Signature, Verb};
use crate::world::Group;

/// The collectives on bytes of the host or of a CUDA device: every count is explicit and in elements.
///
/// ```
/// use unisono::{DType, ReduceOp, testing};
/// testing::spawn(2, |group| {
///     let mut bytes = 1.5f32.to_le_bytes();
///     group.raw().all_reduce(&mut bytes, DType::F32, ReduceOp::Sum).unwrap();
///     assert_eq!(f32::from_le_bytes(bytes), 3.0);
/// });
/// ```
///
/// Device memory is a [`Span`](crate::cuda::Span) in place of a slice. A call on it returns when the work on the device is
/// done.
///
/// ```
/// # fn main() -> unisono::Result<()> {
/// use unisono::cuda::{Device, DeviceMemory};
/// use unisono::{DType, ReduceOp, testing};
/// if Device::get(0).is_ok() {
///     testing::spawn(2, |group| {
///         let device = Device::get(0).unwrap();
///         let memory = DeviceMemory::new(&device, 4 * 1000).unwrap();
///         // SAFETY: the memory lives until the call has returned.
///         let values = unsafe { memory.span() };
///         group.raw().all_reduce(values, DType::F32, ReduceOp::Sum).unwrap();
///     });
/// }
/// # Ok(())
/// # }
/// ```
pub struct Raw<'a> {
    pub(super) group: &'a Group,
    /// The name by which users know the call; by default that of its verb.
    name: Option<Verb>,
    /// The call over several hosts that this one is a step of: members then compare the signature of that call.
    enclosing: Option<Signature>,
    /// The events that device memory waits for; if `None`, all work ordered before the device's stream.
    pub(super) ready: Option<Vec<Arc<Event>>>,
}

impl Group {
    /// The same collectives on bytes.
    pub fn raw(&self) -> Raw<'_> {
        Raw { group: self, name: None, enclosing: None, ready: None }
    }

    /// The same collectives on CUDA memory.
    #[deprecated(note = "`Group::raw` takes CUDA memory, too")]
    pub fn cuda(&self) -> Raw<'_> {
        self.raw()
    }
}

/// The collectives on CUDA memory.
#[deprecated(note = "`Raw` takes CUDA memory, too")]
pub type Cuda<'a> = Raw<'a>;

impl Raw<'_> {
    /// The same collectives as steps of a call with this signature.
    pub(super) fn steps_of(self, enclosing: Signature) -> Self {
        Raw { enclosing: Some(enclosing), ..self }
    }

    /// The same collectives under another name.
    pub(crate) fn named(self, name: Verb) -> Self {
        Raw { name: Some(name), ..self }
    }

    /// The same collectives on device memory that is ready when these events have completed. Without them, a call waits for
    /// all work that is ordered before [`Device::stream`](crate::cuda::Device::stream) when it begins: in the background, that
    /// may include much later work of its caller.
    ///
    /// ```
    /// # fn main() -> unisono::Result<()> {
    /// use std::sync::Arc;
    /// use unisono::cuda::{Device, DeviceMemory, Stream};
    /// use unisono::{DType, ReduceOp, testing};
    /// if Device::get(0).is_ok() {
    ///     testing::spawn(2, |group| {
    ///         let device = Device::get(0).unwrap();
    ///         let (stream, memory) = (Stream::new(&device).unwrap(), DeviceMemory::new(&device, 400).unwrap());
    ///         // SAFETY: the memory lives until the call has returned.
    ///         let values = unsafe { memory.span() };
    ///         // SAFETY: as above; the call waits for it.
    ///         unsafe { stream.fill(memory.address(), 0, 400).unwrap() };
    ///         let filled = Arc::new(stream.mark().unwrap());
    ///         group.raw().after([filled]).all_reduce(values, DType::F32, ReduceOp::Sum).unwrap();
    ///     });
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn after(mut self, ready: impl IntoIterator<Item = Arc<Event>>) -> Self {
        self.ready = Some(ready.into_iter().collect());
        self
    }

    /// The name of a call.
    #[inline]
    pub(super) fn name_of(&self, spec: &CollectiveSpec) -> Verb {
        self.name.unwrap_or(spec.verb.descriptor.verb)
    }

    /// Makes a call with a separate output.
    pub(super) fn execute_between<'b>(
        &self,
        spec: &CollectiveSpec,
        input: Option<Buffer<'b>>,
        output: Option<BufferMut<'b>>,
    ) -> Result<()> {
        let has = |side| spec.has(side, self.group.rank());
        let input = input.filter(|_| has(BufferSide::Input));
        let output = output.filter(|_| has(BufferSide::Output));
        let buffers = Buffers::separate(input, output).map_err(|_| {
            let expected = "arrays that are all in CUDA memory, or all in host memory";
            let received = "an output in a different memory space from its input";
            let advice = "move some of them: x.to(device), or x.cpu()";
            self.reject(self.name_of(spec), expected, received, advice)
        })?;
        self.execute(spec, buffers)
    }

    /// Makes a call.
    pub(super) fn execute(&self, spec: &CollectiveSpec, buffers: Buffers) -> Result<()> {
        self.validate(spec, &buffers)?;
        if let Buffers::Device(input, output) = buffers {
            return self.execute_on_device(spec, input, output);
        }
        let (group, name) = (self.group, self.name_of(spec));
        group.call(name, |call| {
            let (bytes, deterministic) = (buffers.bytes().0, group.is_deterministic());
            let own = || spec.signature(name, call.number, bytes, deterministic);
            let signature = self.enclosing.unwrap_or_else(own);
            (spec.verb.execute)(&HostCall { group, call, spec, signature }, buffers)
        })
    }
}

/// One call on host memory, while it lasts.
///
/// In shared memory all members compare their calls before they touch any data. Over messages a member compares its call only
/// with those of the members from which it receives: the signature of a message must be that of the call. What no member
/// receives stays in the mailbox, and the next call that receives from the same member fails.
#[derive(Clone, Copy)]
pub(super) struct HostCall<'a> {
    pub group: &'a Group,
    pub call: &'a Call<'a>,
    pub spec: &'a CollectiveSpec<'a>,
    pub signature: Signature,
}

impl HostCall<'_> {
    /// Whether this rank is the root.
    pub fn is_root(&self) -> bool {
        self.spec.root == Some(self.group.rank())
    }

    /// The match key of the call's messages.
    pub fn match_key(&self) -> MatchKey {
        self.group.match_key(self.signature)
    }

    /// A message to every other rank. Every rank begins with another receiver: none is the first of all senders.
    pub fn outgoing<'b>(&self, part: impl Fn(usize) -> &'b [u8]) -> Vec<Outgoing<'b>> {
        let rank = self.group.rank();
        let others = (rank + 1..self.group.size()).chain(0..rank);
        others.map(|to| Outgoing { to, bytes: part(to) }).collect()
    }

    /// This rank's range of `bytes`, and a message from every other rank to its range. The ranges follow each other.
    pub fn incoming<'b>(
        &self,
        mut bytes: &'b mut [u8],
        ranges: &[Range<usize>],
    ) -> (&'b mut [u8], Vec<Incoming<'b>>) {
        let (mut own, mut receives): (&mut [u8], _) = (&mut [], Vec::with_capacity(ranges.len()));
        for (from, range) in ranges.iter().enumerate() {
            let (part, rest) = bytes.split_at_mut(range.len());
            bytes = rest;
            match from == self.group.rank() {
                true => own = part,
                false => receives.push(Incoming { from, bytes: part }),
            }
        }
        (own, receives)
    }
}
