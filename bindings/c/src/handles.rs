//! What C holds is a number, never a pointer: one that was freed, or is of another kind, is an error and not a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use unisono::{Error, Group, Result};

use crate::border::Border;

/// What a handle can stand for.
pub(crate) enum Object {
    Group(Group),
}

/// A kind of object that C can hold.
pub(crate) trait Held: Clone {
    /// Its name in errors.
    const NAME: &'static str;
    fn of(object: &Object) -> Option<&Self>;
    fn into_object(self) -> Object;
}

impl Held for Group {
    const NAME: &'static str = "a group";

    fn of(object: &Object) -> Option<&Group> {
        let Object::Group(group) = object;
        Some(group)
    }

    fn into_object(self) -> Object {
        Object::Group(self)
    }
}

type Handles = BTreeMap<u64, Object>;
static HANDLES: LazyLock<RwLock<Handles>> = LazyLock::new(RwLock::default);
/// Numbers are never used again, so an old one cannot stand for something new. Zero is nobody's.
static NEXT: AtomicU64 = AtomicU64::new(1);

fn handles() -> RwLockReadGuard<'static, Handles> {
    HANDLES.read().unwrap_or_else(PoisonError::into_inner)
}

fn handles_mut() -> RwLockWriteGuard<'static, Handles> {
    HANDLES.write().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an object; C gets the number.
pub(crate) fn keep<T: Held>(object: T) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    handles_mut().insert(number, object.into_object());
    number
}

/// Forgets everything that belongs to a world, when it ends.
pub(crate) fn clear() {
    let gone = std::mem::take(&mut *handles_mut());
    // Dropped here, without the lock: what is dropped may take its time.
    drop(gone);
}

impl Border {
    /// The object behind a handle.
    pub(crate) fn held<T: Held>(&self, handle: u64) -> Result<T> {
        let handles = handles();
        let object = handles.get(&handle);
        object.and_then(T::of).cloned().ok_or_else(|| self.no_such::<T>(handle, object.is_some()))
    }

    /// The object behind a handle, which ends.
    pub(crate) fn take<T: Held>(&self, handle: u64) -> Result<Object> {
        let mut handles = handles_mut();
        let object = handles.get(&handle);
        if object.and_then(T::of).is_none() {
            return Err(self.no_such::<T>(handle, object.is_some()));
        }
        Ok(handles.remove(&handle).expect("it was there a line ago"))
    }

    fn no_such<T: Held>(&self, handle: u64, is_other: bool) -> Error {
        let received = match is_other {
            true => format!("handle {handle}, which is of another kind"),
            false => format!("handle {handle}, which was freed or never made"),
        };
        self.refuse(T::NAME, received, "keep what the function that made it wrote, until you free it")
    }
}
