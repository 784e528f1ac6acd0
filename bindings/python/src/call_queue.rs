//! Makes the calls of one PyTorch process group in the order in which they were submitted, one at a time.
//!
//! A thread that waits for a call makes the calls before it, and the call itself, unless the background thread has begun:
//! short calls then need no switch between threads. The background thread is started on first use.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use unisono::POLL_INTERVAL;

use crate::fork::ProcessLocal;
use crate::interrupt;

/// One call of a process group.
pub(crate) trait QueuedCall: Send {
    /// Makes the call and keeps its outcome.
    fn run(&mut self);

    /// Runs the callbacks of the call's future. The call is finished then, and no lock is held.
    fn complete(&mut self);
}

/// How a wait for a call has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Finished,
    TimedOut,
    /// A signal handler raised an exception on this thread.
    Interrupted,
}

/// The calls of one process group.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when a call has finished.
    finished: Condvar,
    /// Notified when the background thread has something to do.
    submitted: Condvar,
}

#[derive(Default)]
struct State {
    /// Calls that have not begun. Calls are numbered from 1; the first of these has the number after the running one.
    waiting: VecDeque<Box<dyn QueuedCall>>,
    submitted: u64,
    finished: u64,
    is_running: bool,
    is_closed: bool,
    background: Option<JoinHandle<()>>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.finished == self.submitted
    }

    fn take(&mut self) -> Option<Box<dyn QueuedCall>> {
        let call = if self.is_running { None } else { self.waiting.pop_front() };
        self.is_running |= call.is_some();
        call
    }

    fn is_background_thread(&self) -> bool {
        self.background.as_ref().is_some_and(|handle| handle.thread().id() == thread::current().id())
    }
}

impl Queue {
    /// Submits a call, and makes it here if it is not for the background and no other call is unfinished. Returns its number;
    /// none if the queue was closed.
    pub(crate) fn submit(
        self: &Arc<Queue>,
        mut call: Box<dyn QueuedCall>,
        in_background: bool,
    ) -> Option<u64> {
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        state.submitted += 1;
        let number = state.submitted;
        // A future's callback may wait for a call that it submits; on the background thread, it makes that call here.
        let from_callback = in_background && state.is_background_thread();
        if (!in_background || from_callback) && state.finished + 1 == number {
            state.is_running = true;
            drop(state);
            self.make(&mut *call);
            return Some(number);
        }
        state.waiting.push_back(call);
        if from_callback {
            drop(state);
            self.wait(number, None);
        } else if in_background {
            self.wake_background(&mut state);
        }
        Some(number)
    }

    /// Waits until a call has finished. With a limit, the background thread makes the calls: they may take longer.
    pub(crate) fn wait(self: &Arc<Queue>, number: u64, limit: Option<Duration>) -> Waited {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut state = self.lock();
        while state.finished < number {
            if deadline.is_some() {
                self.wake_background(&mut state);
            } else if let Some(mut call) = state.take() {
                drop(state);
                self.make(&mut *call);
                state = self.lock();
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Waited::TimedOut;
            }
            let sleep = left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL);
            let (woken, waited) =
                self.finished.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() {
                // Handlers run without the lock.
                drop(state);
                if interrupt::handler_raised() {
                    return Waited::Interrupted;
                }
                state = self.lock();
            }
        }
        Waited::Finished
    }

    /// Rejects new calls, makes those that were submitted, and ends the background thread.
    fn close(self: &Arc<Queue>) {
        let mut state = self.lock();
        state.is_closed = true;
        let last = state.submitted;
        drop(state);
        self.wait(last, None);
        let background = self.lock().background.take();
        self.submitted.notify_all();
        if let Some(handle) = background
            && handle.thread().id() != thread::current().id()
        {
            // It ends without a panic: calls report their own errors.
            let _ = handle.join();
        }
    }

    fn make(self: &Arc<Queue>, call: &mut dyn QueuedCall) {
        call.run();
        let mut state = self.lock();
        state.is_running = false;
        state.finished += 1;
        if !state.waiting.is_empty() {
            self.wake_background(&mut state);
        }
        drop(state);
        self.finished.notify_all();
        call.complete();
    }

    fn wake_background(self: &Arc<Queue>, state: &mut State) {
        if state.background.is_some() || state.is_closed {
            self.submitted.notify_one();
            return;
        }
        let queue = self.clone();
        let thread = thread::Builder::new().name("unisono-calls".into());
        state.background =
            Some(thread.spawn(move || queue.run()).expect("the system can start one more thread"));
    }

    fn run(self: Arc<Queue>) {
        let mut state = self.lock();
        loop {
            if let Some(mut call) = state.take() {
                drop(state);
                self.make(&mut *call);
                state = self.lock();
            } else if state.is_closed && state.waiting.is_empty() {
                return;
            } else {
                state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call written in Python: an object with the methods `run` and `complete`, which raise nothing.
struct PythonCall(Py<PyAny>);

impl PythonCall {
    fn call(&self, method: &str) {
        // The interpreter is finalizing if this thread cannot attach to it.
        Python::try_attach(|py| {
            if let Err(raised) = self.0.call_method0(py, method) {
                raised.write_unraisable(py, None);
            }
        });
    }
}

impl QueuedCall for PythonCall {
    fn run(&mut self) {
        self.call("run");
    }

    fn complete(&mut self) {
        self.call("complete");
    }
}

/// The queue of a process group, for Python.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct CallQueue {
    queue: ProcessLocal<Arc<Queue>>,
}

impl CallQueue {
    /// The queue; none in a forked child, whose parent has the background thread.
    pub(crate) fn handle(&self) -> Option<&Arc<Queue>> {
        self.queue.get()
    }
}

#[pymethods]
impl CallQueue {
    #[new]
    fn new() -> CallQueue {
        CallQueue { queue: ProcessLocal::new(Arc::default()) }
    }

    /// Submits a call; None if the queue was closed.
    fn submit(&self, py: Python<'_>, call: Py<PyAny>, background: bool) -> Option<u64> {
        let mut call = PythonCall(call);
        py.detach(|| match self.handle() {
            Some(queue) => queue.submit(Box::new(call), background),
            None => {
                // The call itself reports that it cannot be made here.
                call.run();
                call.complete();
                Some(0)
            }
        })
    }

    /// Waits for a call; False if the limit in seconds, if it is above 0, passes first.
    fn wait(&self, py: Python<'_>, number: u64, limit: f64) -> PyResult<bool> {
        let limit = if limit > 0.0 { Duration::try_from_secs_f64(limit).ok() } else { None };
        match py.detach(|| self.handle().map_or(Waited::Finished, |queue| queue.wait(number, limit))) {
            Waited::Finished => Ok(true),
            Waited::TimedOut => Ok(false),
            Waited::Interrupted => Err(interrupt::pending_exception().expect("a handler raised it")),
        }
    }

    /// Whether all submitted calls have finished.
    #[getter]
    fn is_idle(&self) -> bool {
        self.handle().is_none_or(|queue| queue.lock().is_idle())
    }

    /// Rejects new calls, makes those that were submitted, and ends the background thread.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.handle().map(Queue::close));
    }
}

impl Drop for CallQueue {
    fn drop(&mut self) {
        // The background thread ends when it has made the calls that were submitted.
        if let Some(queue) = self.handle() {
            queue.lock().is_closed = true;
            queue.submitted.notify_all();
        }
    }
}
