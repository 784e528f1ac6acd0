//! The native group: parses the arguments of a call, then runs it with the GIL released or in the background.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use unisono::{Error, Result};

use crate::any_array::{AnyArray, ResultPlacement};
use crate::call::{CallOptions, CallOutcome, number, parse_reduce_op, repr_of, seconds};
use crate::call_guard::CallGuard;
use crate::errors::{guard, raise};
use crate::fork::{ProcessLocal, WorldLiveness};
use crate::pending::{Pending, Running};
use crate::{in_place, interrupt, nvidia, out_of_place};

/// The ranks that take part in a call.
#[pyclass(frozen, module = "unisono._native")]
pub(crate) struct Group {
    group: ProcessLocal<unisono::Group>,
    liveness: Arc<WorldLiveness>,
}

impl Group {
    pub(crate) fn new(group: &unisono::Group, liveness: Arc<WorldLiveness>) -> Group {
        Group { group: ProcessLocal::new(group.with_interrupt(interrupt::hook())), liveness }
    }

    /// The underlying group, for objects created on it.
    pub(crate) fn handle(&self) -> unisono::Group {
        self.group.clone()
    }

    /// Whether the world may still be used; shared with objects created on this group.
    pub(crate) fn liveness(&self, operation: &'static str) -> Result<Arc<WorldLiveness>> {
        self.liveness.check(operation).map(|()| self.liveness.clone())
    }

    /// Parses a member's rank in the group.
    fn rank_of(&self, member: &Bound<'_, PyAny>, operation: &str) -> PyResult<usize> {
        let size = self.group.size();
        match member.extract() {
            Ok(rank) if rank < size => Ok(rank),
            _ => {
                let expected = format!("a rank from 0 to {}", size - 1);
                let advice = format!("{} has {size} ranks", self.group.name());
                Err(raise(member.py(), Error::usage(operation, expected, repr_of(member), advice)))
            }
        }
    }

    /// Starts a message: messages are sent in the order of the calls, and a delayed one does not block collectives.
    fn start_message(
        &self,
        py: Python<'_>,
        operation: &'static str,
        timeout: Option<f64>,
        start: impl FnOnce(&unisono::Group) -> Result<Box<dyn Running>>,
    ) -> PyResult<Py<PyAny>> {
        let adjusted =
            self.adjusted(operation, CallOptions::new(false, timeout)).map_err(|error| raise(py, error))?;
        let group = adjusted.as_ref().unwrap_or(&self.group);
        let started = guard(operation, || start(group)).map_err(|error| raise(py, error))?;
        Ok(Py::new(py, Pending::new(operation, started))?.into_any())
    }

    /// The group with the call's timeout and determinism, if they differ from the defaults.
    fn adjusted(&self, operation: &str, call: CallOptions) -> Result<Option<unisono::Group>> {
        Ok(match (seconds(call.timeout, operation)?, call.deterministic) {
            (None, false) => None,
            (Some(limit), false) => Some(self.group.with_timeout(limit)),
            (None, true) => Some(self.group.deterministic(true)),
            (Some(limit), true) => Some(self.group.with_timeout(limit).deterministic(true)),
        })
    }

    /// Runs a call on this thread, or in the background if `call.wait` is false.
    fn run(
        &self,
        call_guard: Option<CallGuard<'_>>,
        py: Python<'_>,
        operation: &'static str,
        call: CallOptions,
        mut job: impl FnMut(&unisono::Group) -> Result<CallOutcome> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let adjusted = self.adjusted(operation, call).map_err(|error| raise(py, error))?;
        let group = adjusted.as_ref().unwrap_or(&self.group);
        call_guard.into_iter().for_each(CallGuard::disarm);
        if !call.wait {
            let started = group.start(move |group| guard(operation, || job(group)));
            return Ok(Py::new(py, Pending::new(operation, Box::new(started)))?.into_any());
        }
        // The job holds the caller's arrays and is dropped after the GIL is reacquired.
        let outcome = py.detach(|| guard(operation, || job(group)));
        outcome.map_err(|error| raise(py, error))?.into_python(py)
    }
}

#[pymethods]
impl Group {
    #[getter]
    fn rank(&self) -> usize {
        self.group.rank()
    }

    #[getter]
    fn size(&self) -> usize {
        self.group.size()
    }

    #[getter]
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.group.members())
    }

    #[getter]
    fn name(&self) -> &str {
        self.group.name()
    }

    fn revoke(&self, py: Python<'_>) {
        py.detach(|| self.group.revoke());
    }

    /// Counts a call whose arguments the Python layer has rejected.
    fn skip_call(&self) {
        self.group.skip_call();
    }

    fn subgroup(
        &self,
        py: Python<'_>,
        members: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Group>> {
        let call_guard = self.begin(py, "group")?;
        let members = members.iter().map(|one| self.rank_of(one, "group")).collect::<PyResult<Vec<_>>>()?;
        self.make_subgroup(py, call_guard, "group", timeout, |group| group.subgroup(&members))
    }

    fn split(
        &self,
        py: Python<'_>,
        color: Option<&Bound<'_, PyAny>>,
        key: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Group>> {
        let call_guard = self.begin(py, "split")?;
        let color: Option<u64> = color
            .map(|color| number(color, "split", "a color from 0 up", "pass None to join no group"))
            .transpose()?;
        let key: i64 = number(key, "split", "a key of at most 64 bits", "choose another key")?;
        self.make_subgroup(py, call_guard, "split", timeout, |group| group.split(color, key))
    }

    fn barrier(&self, py: Python<'_>, wait: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(py, "barrier")?;
        self.run(Some(call_guard), py, "barrier", CallOptions::new(wait, timeout), |group| {
            group.barrier().map(|()| CallOutcome::Nothing)
        })
    }

    /// The path that CUDA memory takes between the ranks, each on the device that it passes.
    fn cuda_path(
        &self,
        py: Python<'_>,
        device: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<&'static str> {
        let call_guard = self.begin(py, "cuda_path")?;
        let expected = "the number of a device, from 0 up";
        let device: u32 = number(device, "cuda_path", expected, "leave it out for the current one")?;
        call_guard.disarm();
        nvidia::add_package_folders(py)?;
        let failed = |error| raise(py, error);
        let adjusted = self.adjusted("cuda_path", CallOptions::new(true, timeout)).map_err(failed)?;
        let group = adjusted.as_ref().unwrap_or(&self.group);
        py.detach(|| guard("cuda_path", || group.raw().path(device))).map_err(failed)
    }

    fn broadcast(
        &self,
        x: &Bound<'_, PyAny>,
        root: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (call_guard, root) = self.begin_at("broadcast", root)?;
        let job = in_place::in_place(AnyArray::in_place(x, "broadcast")?, move |raw, x, dtype| {
            raw.broadcast(x, dtype, root)
        });
        self.run(Some(call_guard), x.py(), "broadcast", CallOptions::new(wait, timeout), job)
    }

    fn all_reduce(
        &self,
        x: &Bound<'_, PyAny>,
        op: &str,
        wait: bool,
        timeout: Option<f64>,
        deterministic: bool,
    ) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(x.py(), "all_reduce")?;
        let op = parse_reduce_op(op, "all_reduce").map_err(|error| raise(x.py(), error))?;
        let job = in_place::in_place(AnyArray::in_place(x, "all_reduce")?, move |raw, x, dtype| {
            raw.all_reduce(x, dtype, op)
        });
        self.run(
            Some(call_guard),
            x.py(),
            "all_reduce",
            CallOptions::reduction(wait, timeout, deterministic),
            job,
        )
    }

    #[pyo3(signature = (x, op, root, wait, timeout, deterministic))]
    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        x: &Bound<'_, PyAny>,
        op: &str,
        root: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
        deterministic: bool,
    ) -> PyResult<Py<PyAny>> {
        let (call_guard, root) = self.begin_at("reduce", root)?;
        let op = parse_reduce_op(op, "reduce").map_err(|error| raise(x.py(), error))?;
        let array = match root == self.group.rank() {
            true => AnyArray::in_place(x, "reduce")?,
            false => AnyArray::like_in_place(x, "reduce")?,
        };
        let job = in_place::in_place(array, move |raw, x, dtype| raw.reduce(x, dtype, op, root));
        self.run(
            Some(call_guard),
            x.py(),
            "reduce",
            CallOptions::reduction(wait, timeout, deterministic),
            job,
        )
    }

    #[pyo3(signature = (x, op, root, wait, timeout, deterministic))]
    #[allow(clippy::too_many_arguments)]
    fn reduce_to(
        &self,
        x: &Bound<'_, PyAny>,
        op: &str,
        root: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
        deterministic: bool,
    ) -> PyResult<Py<PyAny>> {
        let (call_guard, root) = self.begin_at("reduce", root)?;
        let op = parse_reduce_op(op, "reduce").map_err(|error| raise(x.py(), error))?;
        let job = out_of_place::reduce(AnyArray::input(x, "reduce")?, op, root);
        self.run(
            Some(call_guard),
            x.py(),
            "reduce",
            CallOptions::reduction(wait, timeout, deterministic),
            job,
        )
    }

    fn gather(
        &self,
        x: &Bound<'_, PyAny>,
        root: &Bound<'_, PyAny>,
        varied: bool,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (call_guard, root) = self.begin_at("gather", root)?;
        let job = out_of_place::gather(AnyArray::input(x, "gather")?, Some(root), varied, "gather");
        self.run(
            Some(call_guard),
            x.py(),
            "gather",
            CallOptions::new(wait, timeout),
            job.map_err(|error| raise(x.py(), error))?,
        )
    }

    fn all_gather(
        &self,
        x: &Bound<'_, PyAny>,
        varied: bool,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(x.py(), "all_gather")?;
        let job = out_of_place::gather(AnyArray::input(x, "all_gather")?, None, varied, "all_gather");
        self.run(
            Some(call_guard),
            x.py(),
            "all_gather",
            CallOptions::new(wait, timeout),
            job.map_err(|error| raise(x.py(), error))?,
        )
    }

    fn scatter(
        &self,
        py: Python<'_>,
        x: Option<&Bound<'_, PyAny>>,
        root: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (call_guard, root) = self.begin_at("scatter", root)?;
        let mut placement = None;
        let array = match x {
            Some(x) if root == self.group.rank() => Some(AnyArray::input(x, "scatter")?),
            Some(like) => {
                placement = Some(ResultPlacement::of(like, "scatter")?);
                None
            }
            None if root == self.group.rank() => {
                let error =
                    Error::usage("scatter", "an array at the root", "None", "pass it as x on that rank");
                return Err(raise(py, error.at_rank(root)));
            }
            None => None,
        };
        let job = out_of_place::scatter(array, root, placement).map_err(|error| raise(py, error))?;
        self.run(Some(call_guard), py, "scatter", CallOptions::new(wait, timeout), job)
    }

    fn reduce_scatter(
        &self,
        x: &Bound<'_, PyAny>,
        op: &str,
        wait: bool,
        timeout: Option<f64>,
        deterministic: bool,
    ) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(x.py(), "reduce_scatter")?;
        let op = parse_reduce_op(op, "reduce_scatter").map_err(|error| raise(x.py(), error))?;
        let job = out_of_place::reduce_scatter(AnyArray::input(x, "reduce_scatter")?, op);
        let call = CallOptions::reduction(wait, timeout, deterministic);
        self.run(Some(call_guard), x.py(), "reduce_scatter", call, job.map_err(|error| raise(x.py(), error))?)
    }

    fn all_to_all(&self, x: &Bound<'_, PyAny>, wait: bool, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(x.py(), "all_to_all")?;
        let job = out_of_place::all_to_all(AnyArray::input(x, "all_to_all")?, self.group.size());
        self.run(
            Some(call_guard),
            x.py(),
            "all_to_all",
            CallOptions::new(wait, timeout),
            job.map_err(|error| raise(x.py(), error))?,
        )
    }

    fn all_to_all_varied(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let call_guard = self.begin(py, "all_to_all")?;
        let views =
            parts.iter().map(|part| AnyArray::input(part, "all_to_all")).collect::<PyResult<Vec<_>>>()?;
        let job =
            out_of_place::all_to_all_varied(views, self.group.size()).map_err(|error| raise(py, error))?;
        self.run(Some(call_guard), py, "all_to_all", CallOptions::new(wait, timeout), job)
    }

    fn send(
        &self,
        x: &Bound<'_, PyAny>,
        to: &Bound<'_, PyAny>,
        tag: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (to, tag) = self.begin_message("send", to, tag)?;
        let array = AnyArray::input(x, "send")?;
        if !wait {
            return self
                .start_message(x.py(), "send", timeout, |group| in_place::start_send(group, array, to, tag));
        }
        let job = in_place::send(array, to, tag);
        self.run(None, x.py(), "send", CallOptions::new(wait, timeout), job)
    }

    fn recv(
        &self,
        x: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        tag: &Bound<'_, PyAny>,
        wait: bool,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (source, tag) = self.begin_message("recv", source, tag)?;
        let array = AnyArray::in_place(x, "recv")?;
        if !wait {
            return self.start_message(x.py(), "recv", timeout, |group| {
                in_place::start_recv(group, array, source, tag)
            });
        }
        let job = in_place::in_place(array, move |raw, x, dtype| raw.recv(x, dtype, source, tag));
        self.run(None, x.py(), "recv", CallOptions::new(wait, timeout), job)
    }
}

impl Group {
    /// Creates a subgroup; the timeout applies to the creation, the new group has the timeout of this one.
    fn make_subgroup(
        &self,
        py: Python<'_>,
        call_guard: CallGuard<'_>,
        operation: &'static str,
        timeout: Option<f64>,
        make: impl FnOnce(&unisono::Group) -> Result<Option<unisono::Group>> + Send,
    ) -> PyResult<Option<Group>> {
        call_guard.disarm();
        let limit = seconds(timeout, operation).map_err(|error| raise(py, error))?;
        let group = limit.map_or_else(|| self.handle(), |limit| self.group.with_timeout(limit));
        let made = py.detach(|| guard(operation, || make(&group))).map_err(|error| raise(py, error))?;
        let with_default_timeout = |made: unisono::Group| match limit {
            Some(_) => made.with_timeout(self.group.timeout()),
            None => made,
        };
        Ok(made.map(|made| Group::new(&with_default_timeout(made), self.liveness.clone())))
    }

    /// Checks that the world is alive and arms the call guard, for every collective.
    fn begin(&self, py: Python<'_>, operation: &'static str) -> PyResult<CallGuard<'_>> {
        self.liveness.check(operation).map_err(|error| raise(py, error))?;
        Ok(CallGuard::of(&self.group))
    }

    /// Checks a message's peer and tag; messages are not collective and need no call guard.
    fn begin_message(
        &self,
        operation: &'static str,
        peer: &Bound<'_, PyAny>,
        tag: &Bound<'_, PyAny>,
    ) -> PyResult<(usize, u32)> {
        self.liveness.check(operation).map_err(|error| raise(peer.py(), error))?;
        let tag = number(tag, operation, "a tag from 0 to 2147483647", "choose another tag")?;
        Ok((self.rank_of(peer, operation)?, tag))
    }

    /// As `begin`, for a collective with a root.
    fn begin_at(&self, operation: &'static str, root: &Bound<'_, PyAny>) -> PyResult<(CallGuard<'_>, usize)> {
        let call_guard = self.begin(root.py(), operation)?;
        Ok((call_guard, self.rank_of(root, operation)?))
    }
}
