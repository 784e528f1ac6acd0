//! The collectives on CUDA memory. A call is a rendezvous of the ranks on the host, where each describes its buffers; work
//! on the device; and another rendezvous, after which each rank's buffers are its own again.
//!
//! No kernel waits for another rank: processes that share a device are time-sliced. Deadlines and lost ranks are detected on
//! the host, by the rendezvous. Rationale: docs/design/011-accelerators.md.

mod background;
mod direct;
mod handshake;
mod hosted;
mod kernels;
mod message;
mod nccl;
mod path;
mod rendezvous;
mod session;
mod spec;
mod staged;
mod trial;
mod verbs;
mod windows;

use std::sync::Arc;

use super::Raw;
use crate::cuda::{Device, Event, Span};
use crate::error::Result;
use crate::transport::{Call, Verb};
use crate::world::Group;
use path::Path;
use rendezvous::Rendezvous;
use session::DeviceSession;
use spec::CollectiveSpec;

/// The collectives on device memory: as [`Raw`], with a [`Span`] in place of a slice. They return when the work on the
/// device is done.
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
///         group.cuda().all_reduce(values, DType::F32, ReduceOp::Sum).unwrap();
///     });
/// }
/// # Ok(())
/// # }
/// ```
pub struct Cuda<'a> {
    raw: Raw<'a>,
    /// The events that the memory of the next call waits for; if `None`, all work ordered before the device's stream.
    ready: Option<Vec<Arc<Event>>>,
}

impl Group {
    /// The same collectives on CUDA memory.
    pub fn cuda(&self) -> Cuda<'_> {
        Cuda { raw: Raw { group: self, on_device: true, enclosing: None }, ready: None }
    }
}

impl Cuda<'_> {
    /// The same collectives on memory that is ready when these events have completed. Without them, a call waits for all
    /// work that is ordered before [`Device::stream`] when it begins: in the background, that may include much later work of
    /// its caller.
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
    ///         group.cuda().after([filled]).all_reduce(values, DType::F32, ReduceOp::Sum).unwrap();
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

    /// Waits until the caller's memory is ready.
    fn wait_for_memory(&self, device: &Device, call: &Call) -> Result<()> {
        let go_on = || call.check_wait();
        match &self.ready {
            Some(marks) => marks.iter().try_for_each(|mark| mark.wait(&go_on)),
            None => device.stream().mark()?.wait(&go_on),
        }
    }

    /// The path between the ranks' devices: "direct", "ipc", "nccl" or "staged". Collective; each member passes the ordinal
    /// of its device.
    pub fn path(&self, device: u32) -> Result<&'static str> {
        let group = self.raw.group;
        let nothing = Span::empty(device);
        let device = self.device(Verb::Barrier, &nothing, &nothing)?;
        group.call(Verb::Barrier, |call| {
            let signature = self.raw.signature(Verb::Barrier, call);
            let spec = CollectiveSpec::empty(nothing);
            let session = DeviceSession::join(&Rendezvous { group, call, signature }, &device, &spec)?.0;
            Ok(session.path.name())
        })
    }

    /// The device of a call's memory.
    fn device(&self, verb: Verb, input: &Span, output: &Span) -> Result<Arc<Device>> {
        if input.device() != output.device() {
            let received = format!("devices {} and {}", input.device(), output.device());
            return Err(self.raw.reject(
                verb,
                "an input and an output on one device",
                received,
                "move one of them to the other's device",
            ));
        }
        Device::get(input.device()).inspect_err(|_| {
            if !matches!(verb, Verb::Send | Verb::Recv) {
                self.raw.group.skip_call();
            }
        })
    }

    /// Makes the call that `spec` describes.
    fn execute(&self, spec: &CollectiveSpec) -> Result<()> {
        let group = self.raw.group;
        let device = self.device(spec.verb, &spec.input, &spec.output)?;
        let left = group.call(spec.verb, |call| {
            let signature = self.raw.signature(spec.verb, call);
            let signature = spec.signature(signature, group.is_deterministic());
            let rendezvous = Rendezvous { group, call, signature };
            // Other ranks will read this memory.
            self.wait_for_memory(&device, call)?;
            // From the moment this rank publishes its memory.
            rendezvous.lend(|| {
                let (session, descriptors, counts) = DeviceSession::join(&rendezvous, &device, spec)?;
                match session.path {
                    Path::Direct | Path::Ipc => {
                        direct::execute(&rendezvous, &session, spec, (&descriptors, &counts))?;
                        rendezvous.barrier()?;
                        session.copy_back(&rendezvous, spec, &descriptors[session.me])?;
                        Ok(None)
                    }
                    Path::Nccl => {
                        session.nccl(&rendezvous)?.execute(&rendezvous, &session, spec, &counts)?;
                        rendezvous.barrier().map(|()| None)
                    }
                    Path::Staged => match session.staging(&rendezvous)? {
                        Some(staging) => staging.execute(&rendezvous, &session, spec, &counts).map(|()| None),
                        None => Ok(Some(session)),
                    },
                }
            })
        });
        let left = left.inspect_err(|error| session::close_lost(group, error))?;
        left.map_or(Ok(()), |session| self.through_host(&session, spec))
    }
}
