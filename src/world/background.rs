//! A group's thread for calls in the background: started when first needed, it does one thing after another.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

type Work = Box<dyn FnOnce() + Send>;

/// Does work in the order in which it was given.
#[derive(Default)]
pub(crate) struct Background {
    queue: Mutex<Option<Sender<Work>>>,
}

impl Background {
    /// Gives the thread more to do; `make` is called while nobody else can. The thread ends when the group is gone and all
    /// work is done.
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
            // The thread is gone, which only a panic outside any call could cause: do it here.
            (unsent.0)();
        }
    }
}

/// Starts a thread for work in the background.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name("unisono-pending".into());
    thread.spawn(work).expect("the system can start one more thread");
}
