//! The collectives on CUDA memory. A call is a rendezvous of the ranks on the host, where each describes its buffers; work
//! on the device; and another rendezvous, after which each rank's buffers are its own again.
//!
//! No kernel waits for another rank: processes that share a device are time-sliced. Deadlines and lost ranks are detected on
//! the host, by the rendezvous. Rationale: docs/design/011-accelerators.md.

mod background;
mod direct;
mod handshake;
mod hosted;
mod jobs;
mod kernels;
mod message;
mod nccl;
mod path;
mod rendezvous;
mod session;
mod staged;
mod trial;
mod windows;

use std::sync::Arc;

use super::Raw;
use super::barrier::BARRIER;
use super::broadcast::BROADCAST;
use super::spec::CollectiveSpec;
use crate::cuda::{Device, Span};
use crate::error::Result;
use crate::memory::DType;
use crate::transport::{Call, Signature, Verb};
use jobs::DeviceCollective;
pub(super) use jobs::{BufferOffset, DeviceJob, JobPlan};
use path::Path;
use rendezvous::Rendezvous;
use session::DeviceSession;

impl Raw<'_> {
    /// The path between the ranks' devices: "direct", "ipc", "nccl" or "staged". Collective; each member passes the ordinal
    /// of its device.
    pub fn path(&self, device: u32) -> Result<&'static str> {
        let group = self.group;
        let nothing = Span::empty(device);
        let device = self.device(BARRIER.verb, &nothing, &nothing)?;
        group.call(BARRIER.verb, |call| {
            let signature = Signature::new(BARRIER.verb, call.number).on_device(true);
            // Any verb will do: only the path is agreed on.
            let spec = CollectiveSpec::new(&BROADCAST, DType::U8);
            let collective = DeviceCollective { spec, input: nothing, output: nothing };
            let rendezvous = Rendezvous { group, call, signature };
            Ok(DeviceSession::join(&rendezvous, &device, &collective)?.0.path.name())
        })
    }

    /// Waits until the caller's memory is ready.
    fn wait_for_memory(&self, device: &Device, call: &Call) -> Result<()> {
        let go_on = || call.check_wait();
        match &self.ready {
            Some(marks) => marks.iter().try_for_each(|mark| mark.wait(&go_on)),
            None => device.stream().mark()?.wait(&go_on),
        }
    }

    /// The device of a call's memory.
    fn device(&self, verb: Verb, input: &Span, output: &Span) -> Result<Arc<Device>> {
        if input.device() != output.device() {
            let received = format!("devices {} and {}", input.device(), output.device());
            return Err(self.reject(
                verb,
                "an input and an output on one device",
                received,
                "move one of them to the other's device",
            ));
        }
        Device::get(input.device()).inspect_err(|_| {
            if !matches!(verb, Verb::SEND | Verb::RECV) {
                self.group.skip_call();
            }
        })
    }

    /// Makes a call on device memory, whose arguments have been validated.
    pub(super) fn execute_on_device(&self, spec: &CollectiveSpec, input: Span, output: Span) -> Result<()> {
        let group = self.group;
        let collective = DeviceCollective { spec: *spec, input, output };
        let verb = spec.verb.descriptor.verb;
        let device = self.device(verb, &input, &output)?;
        let left = group.call(verb, |call| {
            let bytes = input.bytes().max(output.bytes());
            let signature = spec.signature(verb, call.number, bytes, group.is_deterministic());
            let rendezvous = Rendezvous { group, call, signature: signature.on_device(true) };
            // Other ranks will read this memory.
            self.wait_for_memory(&device, call)?;
            // From the moment this rank publishes its memory.
            rendezvous.lend(|| {
                let (session, descriptors, counts) = DeviceSession::join(&rendezvous, &device, &collective)?;
                match session.path {
                    _ if !spec.has_kernels() => Ok(Some(session)),
                    Path::Direct | Path::Ipc => {
                        direct::execute(&rendezvous, &session, &collective, (&descriptors, &counts))?;
                        rendezvous.barrier()?;
                        session.copy_back(&rendezvous, &collective, &descriptors[session.me])?;
                        Ok(None)
                    }
                    Path::Nccl => {
                        session.nccl(&rendezvous)?.execute(&rendezvous, &session, &collective, &counts)?;
                        rendezvous.barrier().map(|()| None)
                    }
                    Path::Staged => match session.staging(&rendezvous)? {
                        Some(staging) => {
                            staging.execute(&rendezvous, &session, &collective, &counts).map(|()| None)
                        }
                        None => Ok(Some(session)),
                    },
                }
            })
        });
        let left = left.inspect_err(|error| session::close_lost(group, error))?;
        left.map_or(Ok(()), |session| self.through_host(&session, &collective))
    }
}
