//! A group's background thread: started on first use, it runs queued calls one at a time.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// Runs work in queue order.
#[derive(Default)]
pub(crate) struct Background {
    queue: Mutex<Option<Sender<Work>>>,
}

impl Background {
    /// Queues work; `make` is called under the queue's lock. The thread exits once the group has been dropped and the
    /// queue is empty.
    pub fn run(&self, make: impl FnOnce() -> Work) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = queue.get_or_insert_with(|| {
            let (sender, receiver) = channel::<Work>();
            spawn(move || receiver.into_iter().for_each(|work| work()));
            sender
        });
        let sent = sender.send(make());
        drop(queue);
        if let Err(unsent) = sent {
            // The thread has exited, which only a panic outside any call could cause: run the work here.
            (unsent.0)();
        }
    }
}

/// Starts a background thread.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("unisono-pending".into());
    thread.spawn(work).expect("the system can start one more thread");
}
