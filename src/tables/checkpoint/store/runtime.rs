//! Blocks on the asynchronous operations of object stores, from any thread, even one that belongs to another runtime.

use std::future::Future;
use std::thread;

use crate::error::{Error, Result};

/// A runtime without threads of its own.
pub(super) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn new(operation: &str) -> Result<Runtime> {
        let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let error = |error| Error::io(operation, "the runtime of the object store", error, ADVICE);
        Ok(Runtime(Some(built.map_err(error)?)))
    }

    /// Runs the future on a temporary thread and returns its result: a thread that belongs to another runtime must not block
    /// itself, and the cost of a thread is negligible beside a request.
    pub(super) fn wait<F>(&self, operation: &str, future: F) -> Result<F::Output>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let lost = || Error::internal(operation, "the object store's client panicked");
        let runtime = self.0.as_ref().ok_or_else(lost)?;
        thread::scope(|scope| {
            let named = thread::Builder::new().name("unisono-objects".into());
            let started = named.spawn_scoped(scope, || runtime.block_on(future));
            let thread = started.map_err(|error| Error::io(operation, "a thread", error, ADVICE))?;
            thread.join().map_err(|_| lost())
        })
    }
}

const ADVICE: &str = "check the limits on threads and open files";

impl Drop for Runtime {
    /// By default, a runtime panics when it is dropped inside another one.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[test]
fn it_works_inside_another_runtime() {
    let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = outer.block_on(async { Runtime::new("load")?.wait("load", async { 5 }) });
    assert_eq!(found.unwrap(), 5);
}

#[test]
fn a_panic_becomes_an_error() {
    let runtime = Runtime::new("load").unwrap();
    assert!(runtime.wait("load", async { panic!("on purpose") }).is_err());
}
