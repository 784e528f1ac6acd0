//! What the layers above see of a group: its means of communication, and the state that they keep with it.

use std::any::Any;
use std::sync::{Arc, PoisonError, Weak};

use super::Group;
use super::watchers::Watcher;
use crate::transport::Transport;
use crate::transport::arena::LocalEndpoint;
use crate::transport::arena::channel::Channel;

impl Group {
    /// The shared-memory channel, if all members share memory.
    #[inline]
    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.core.channel.as_ref()
    }

    /// The world's transport.
    #[inline]
    pub(crate) fn transport(&self) -> &Arc<dyn Transport> {
        &self.core.world.transport
    }

    /// This rank's endpoint in the arena of its host; a world with one rank per host has none.
    #[inline]
    pub(crate) fn endpoint(&self) -> Option<&Arc<LocalEndpoint>> {
        self.core.world.endpoint.as_ref()
    }

    /// The context id, which separates this group's messages from those of other groups.
    #[inline]
    pub(crate) fn context(&self) -> u32 {
        self.core.context
    }

    /// The host number of each world rank; ranks with equal numbers share memory.
    pub(crate) fn host_numbers(&self) -> &[usize] {
        &self.core.world.hosts
    }

    /// False in a forked child of the process that called init.
    pub(crate) fn is_original_process(&self) -> bool {
        self.core.world.fork_guard.is_original_process()
    }

    /// Lets `watcher` observe the calls on the world's group.
    pub(crate) fn add_watcher(&self, watcher: Weak<dyn Watcher>) {
        self.core.world.watchers.add(watcher);
    }

    /// The state that an upper layer has attached to this group, if it is of this type.
    pub(crate) fn attachment<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let attachment = self.core.attachment.lock().unwrap_or_else(PoisonError::into_inner);
        attachment.clone()?.downcast().ok()
    }

    /// Keeps an upper layer's state with this group, for all handles; replaces the previous one.
    pub(crate) fn attach(&self, state: Arc<dyn Any + Send + Sync>) {
        *self.core.attachment.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
    }
}
