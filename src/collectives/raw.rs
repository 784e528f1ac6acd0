//! The collectives on bytes, for bindings: each verb builds its descriptor, and one function executes it.

use std::sync::Arc;

use super::buffer::{Buffer, BufferMut, Buffers};
use super::spec::CollectiveSpec;
use super::verbs;
use crate::cuda::{Event, Span};
use crate::error::{Error, Result};
use crate::memory::{DType, ReduceOp};
use crate::transport::{Call, Signature, Slot, Verb};
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
/// Device memory is a [`Span`] in place of a slice. A call on it returns when the work on the device is
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

    /// Blocks until every member has called this.
    pub fn barrier(&self) -> Result<()> {
        self.group.barrier()
    }

    /// Copies the root's values to every member.
    #[inline]
    pub fn broadcast<'b>(&self, values: impl Into<BufferMut<'b>>, dtype: DType, root: usize) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::BROADCAST, dtype).root(root);
        self.execute(&spec, Buffers::in_place(values.into()))
    }

    /// Reduces the members' values, in place.
    #[inline]
    pub fn all_reduce<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::ALL_REDUCE, dtype).operation(operation);
        self.execute(&spec, Buffers::in_place(values.into()))
    }

    /// Reduces the members' values into the root's buffer; the other members' buffers do not change.
    pub fn reduce<'b>(
        &self,
        values: impl Into<BufferMut<'b>>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::REDUCE, dtype).operation(operation).root(root);
        let buffers = match values.into() {
            // Nothing may be written to the other members' memory.
            BufferMut::Device(span) if self.group.rank() != root => {
                Buffers::Device(span, Span::empty(span.device()))
            }
            values => Buffers::in_place(values),
        };
        self.execute(&spec, buffers)
    }

    /// Reduces the members' inputs into the root's output; outputs of other ranks are not used.
    pub fn reduce_to<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: Option<impl Into<BufferMut<'b>>>,
        dtype: DType,
        operation: ReduceOp,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::REDUCE, dtype).operation(operation).root(root);
        let output = output.filter(|_| self.group.rank() == root).map(Into::into);
        self.execute(&spec, self.pair(verbs::REDUCE, Some(input.into()), output)?)
    }

    /// Concatenates the members' values in rank order; `counts` is the number of elements of each member.
    pub fn all_gather<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: impl Into<BufferMut<'b>>,
        counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::ALL_GATHER, dtype).counts(counts);
        self.execute(&spec, self.pair(verbs::ALL_GATHER, Some(input.into()), Some(output.into()))?)
    }

    /// As [`Raw::all_gather`] in host memory, where this rank's values are already in their place in the output.
    pub fn all_gather_in_place(&self, output: &mut [u8], counts: &[usize], dtype: DType) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::ALL_GATHER, dtype).counts(counts);
        // Invalid counts, which may overflow here, are rejected before the range is used.
        let bytes =
            |counts: &[usize]| counts.iter().fold(0usize, |sum, &n| sum.wrapping_add(n)) * dtype.size();
        let (before, rest) = counts.split_at(self.group.rank().min(counts.len()));
        let start = bytes(before);
        let own = start..start.wrapping_add(bytes(&rest[..rest.len().min(1)]));
        self.execute(&spec, Buffers::OwnPart(output, own))
    }

    /// Concatenates the members' values at the root; `counts` is the number of elements of each member. Only the root's
    /// output is used.
    pub fn gather<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: Option<impl Into<BufferMut<'b>>>,
        counts: &[usize],
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::GATHER, dtype).counts(counts).root(root);
        let output = output.filter(|_| self.group.rank() == root).map(Into::into);
        self.execute(&spec, self.pair(verbs::GATHER, Some(input.into()), output)?)
    }

    /// Distributes parts of the root's values; `counts` is the number of elements of each part. Only the root's input is
    /// used.
    pub fn scatter<'b>(
        &self,
        input: Option<impl Into<Buffer<'b>>>,
        counts: &[usize],
        output: impl Into<BufferMut<'b>>,
        dtype: DType,
        root: usize,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::SCATTER, dtype).counts(counts).root(root);
        let input = input.filter(|_| self.group.rank() == root).map(Into::into);
        self.execute(&spec, self.pair(verbs::SCATTER, input, Some(output.into()))?)
    }

    /// Reduces the members' inputs, and gives every member its part of the result; `counts` is the number of elements of
    /// each part.
    pub fn reduce_scatter<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        output: impl Into<BufferMut<'b>>,
        counts: &[usize],
        dtype: DType,
        operation: ReduceOp,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::REDUCE_SCATTER, dtype).counts(counts).operation(operation);
        self.execute(&spec, self.pair(verbs::REDUCE_SCATTER, Some(input.into()), Some(output.into()))?)
    }

    /// Sends a part to each member and receives one from each; a sender's count for a receiver must equal the receiver's
    /// count for that sender.
    pub fn all_to_all<'b>(
        &self,
        input: impl Into<Buffer<'b>>,
        send_counts: &[usize],
        output: impl Into<BufferMut<'b>>,
        receive_counts: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let spec = CollectiveSpec::new(verbs::ALL_TO_ALL, dtype).counts(send_counts);
        let spec = CollectiveSpec { receive_counts, ..spec };
        self.execute(&spec, self.pair(verbs::ALL_TO_ALL, Some(input.into()), Some(output.into()))?)
    }

    /// The name of a call.
    #[inline]
    pub(super) fn name_of(&self, spec: &CollectiveSpec) -> Verb {
        self.name.unwrap_or(spec.verb)
    }

    /// Makes a call.
    pub(super) fn execute(&self, spec: &CollectiveSpec, buffers: Buffers) -> Result<()> {
        self.check(spec, &buffers)?;
        if let Buffers::Device(input, output) = buffers {
            return self.execute_on_device(spec, input, output);
        }
        let (group, name) = (self.group, self.name_of(spec));
        group.call(name, |call| {
            let (bytes, deterministic) = (buffers.bytes().0, group.is_deterministic());
            let own = || spec.signature(name, call.number, bytes, deterministic);
            let signature = self.enclosing.unwrap_or_else(own);
            HostCall { group, call, spec, signature }.execute(buffers)
        })
    }
}

/// One call on host memory, while it lasts.
#[derive(Clone, Copy)]
pub(super) struct HostCall<'a> {
    pub group: &'a Group,
    pub call: &'a Call<'a>,
    pub spec: &'a CollectiveSpec<'a>,
    pub signature: Signature,
}

impl HostCall<'_> {
    fn execute(&self, buffers: Buffers) -> Result<()> {
        match (self.spec.verb, buffers) {
            (verbs::ALL_REDUCE, Buffers::InPlace(bytes)) => self.all_reduce(bytes),
            (verbs::BROADCAST, Buffers::InPlace(bytes)) => self.broadcast(bytes),
            (verbs::REDUCE, Buffers::InPlace(bytes)) => self.reduce(bytes),
            (verbs::REDUCE, Buffers::Separate(input, output)) => self.reduce_to(input, output),
            (verbs::ALL_GATHER, Buffers::Separate(input, output)) => self.all_gather(input, output),
            (verbs::ALL_GATHER, Buffers::OwnPart(output, own)) => self.all_gather_in_place(output, own),
            (verbs::GATHER, Buffers::Separate(input, output)) => self.gather(input, output),
            (verbs::SCATTER, Buffers::Separate(input, output)) => self.scatter(input, output),
            (verbs::REDUCE_SCATTER, Buffers::Separate(input, output)) => self.reduce_scatter(input, output),
            (verbs::ALL_TO_ALL, Buffers::Separate(input, output)) => self.all_to_all(input, output),
            (verb, _) => Err(Error::internal(verb.name(), "it has no form for these buffers")),
        }
    }

    /// Whether this rank is the root.
    pub fn is_root(&self) -> bool {
        self.spec.root == Some(self.group.rank())
    }

    /// The slot of the call's messages.
    pub fn slot(&self) -> Slot {
        self.group.slot(self.signature)
    }
}
