//! Handle table: C holds numbers, never pointers, so that a freed handle or one of another kind is an error and not a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unisono::{Error, Group, Result};

use crate::ffi_args::FfiArgs;
use crate::items::Snapshot;
use crate::options::OptionSet;
use crate::pending::InFlight;
use crate::session;
use crate::table::NamedTable;

/// Any object that a handle can refer to.
pub(crate) enum AnyObject {
    Group(Group),
    Items(Arc<Snapshot>),
    Options(Arc<OptionSet>),
    Pending(Arc<InFlight>),
    Table(Arc<NamedTable>),
}

/// A type of object that a handle can refer to.
pub(crate) trait HandleType: Clone {
    /// Its name in errors.
    const NAME: &'static str;
    /// Whether it ends with the world.
    const NEEDS_WORLD: bool;
    fn of(object: &AnyObject) -> Option<&Self>;
    fn into_object(self) -> AnyObject;
}

macro_rules! handle_types {
    ($($type:ty, $variant:ident, $name:literal, $needs_world:literal;)*) => {
        $(impl HandleType for $type {
            const NAME: &'static str = $name;
            const NEEDS_WORLD: bool = $needs_world;

            fn of(object: &AnyObject) -> Option<&Self> {
                match object {
                    AnyObject::$variant(object) => Some(object),
                    _ => None,
                }
            }

            fn into_object(self) -> AnyObject {
                AnyObject::$variant(self)
            }
        })*
    };
}

handle_types! {
    Group, Group, "a group", true;
    Arc<Snapshot>, Items, "items of a key-value table", true;
    Arc<OptionSet>, Options, "options", false;
    Arc<InFlight>, Pending, "a pending call", true;
    Arc<NamedTable>, Table, "a table", true;
}

type Handles = BTreeMap<u64, AnyObject>;
static HANDLES: RwLock<Handles> = RwLock::new(BTreeMap::new());
/// Handles are never reused, so a stale one cannot refer to a new object. Zero is never issued.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn handles() -> RwLockReadGuard<'static, Handles> {
    HANDLES.read().unwrap_or_else(PoisonError::into_inner)
}

fn handles_mut() -> RwLockWriteGuard<'static, Handles> {
    HANDLES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Stores an object and returns its handle.
pub(crate) fn register<T: HandleType>(object: T) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    handles_mut().insert(number, object.into_object());
    number
}

/// Drops all objects that belong to a world. Options do not belong to one.
pub(crate) fn clear() {
    let all = std::mem::take(&mut *handles_mut());
    let (options, world_objects): (Handles, Handles) =
        all.into_iter().partition(|(_, object)| matches!(object, AnyObject::Options(_)));
    handles_mut().extend(options);
    // Dropped without holding the lock: a destructor may have to wait.
    drop(world_objects);
}

impl FfiArgs {
    /// The object of a handle.
    pub(crate) fn object<T: HandleType>(&self, handle: u64) -> Result<T> {
        let handles = handles();
        let object = handles.get(&handle);
        object.and_then(T::of).cloned().ok_or_else(|| self.no_such::<T>(handle, object.is_some()))
    }

    /// Frees a handle; its object is dropped when the calls that use it have ended.
    pub(crate) fn free<T: HandleType>(&self, handle: u64) -> Result<()> {
        let mut handles = handles_mut();
        let object = handles.get(&handle);
        if object.and_then(T::of).is_none() {
            return Err(self.no_such::<T>(handle, object.is_some()));
        }
        let object = handles.remove(&handle);
        drop(handles);
        drop(object);
        Ok(())
    }

    fn no_such<T: HandleType>(&self, handle: u64, is_other: bool) -> Error {
        if let (true, Err(no_world)) = (T::NEEDS_WORLD, session::current(self.operation)) {
            return no_world;
        }
        let received = match is_other {
            true => format!("handle {handle}, which is of another kind"),
            false => format!("handle {handle}, which was freed or never made"),
        };
        self.usage_error(T::NAME, received, "keep what the function that made it wrote, until you free it")
    }
}
