//! Answers other ranks' location queries ("where are you in your program?") on a dedicated thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::transport::arena::LocalEndpoint;

/// How long the thread sleeps at most before it checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Locator {
    ended: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Locator {
    pub fn start(&self, endpoint: &Arc<LocalEndpoint>, locate: Box<dyn Fn() -> Option<String> + Send>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return;
        }
        let (endpoint, ended) = (endpoint.clone(), self.ended.clone());
        endpoint.own_slot().enable_location_requests();
        let answer = move || {
            let location_request = &endpoint.own_slot().location_request;
            let mut seen = location_request.load();
            while !ended.load(Ordering::Acquire) {
                location_request.sleep_while(seen, STOP_CHECK_INTERVAL);
                let asked = location_request.load();
                if asked != seen && !ended.load(Ordering::Acquire) {
                    endpoint.own_slot().report_location(&locate().unwrap_or_default());
                }
                seen = asked;
            }
        };
        // Optional: without this thread only the location is missing from errors.
        *thread = thread::Builder::new().name("unisono-locator".into()).spawn(answer).ok();
    }

    /// Stops the thread at its next check; does not join it, because it may be waiting for the caller's interpreter.
    pub fn stop(&self) {
        self.ended.store(true, Ordering::Release);
    }
}
