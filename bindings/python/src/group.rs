//! The native group: parses the arguments of a call, then runs it with the GIL released or in the background.

use std::sync::Arc;
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use unisono::Result;

use crate::any_array::{AnyArray, ResultPlacement};
use crate::array::View;
use crate::call::{
    Arg, CallArgs, CallOptions, CallOutcome, flag, given, number, parse_reduce_op, rejected, seconds,
};
use crate::call_guard::CallGuard;
use crate::destination::{Destination, input_and_output, input_apart_from};
use crate::errors::{OrRaise, guard};
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
    pub(crate) fn liveness(&self) -> &Arc<WorldLiveness> {
        &self.liveness
    }

    /// Parses the arguments of a collective. If they are rejected, the call is counted all the same: the other ranks may be
    /// making it.
    #[inline]
    pub(crate) fn prepare<R>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        parse: impl FnOnce(&'static str) -> PyResult<R>,
    ) -> PyResult<R> {
        self.liveness.check(operation).or_raise(py)?;
        let call_guard = CallGuard::of(&self.group);
        let parsed = parse(operation)?;
        call_guard.disarm();
        Ok(parsed)
    }

    /// Makes a collective call: `parse` turns its own arguments into the job that makes it.
    #[inline]
    fn collective<J: FnMut(&unisono::Group) -> Result<CallOutcome> + Send + 'static>(
        &self,
        operation: &'static str,
        args: CallArgs<'_, '_>,
        parse: impl FnOnce(&'static str) -> PyResult<J>,
    ) -> PyResult<Py<PyAny>> {
        let parse_all = |operation| Ok((parse(operation)?, args.parse(operation)?));
        let (job, options) = self.prepare(args.py(), operation, parse_all)?;
        self.run(args.py(), operation, options, job)
    }

    /// Runs a call on this thread, or in the background if `options.wait` is false.
    fn run(
        &self,
        py: Python<'_>,
        operation: &'static str,
        options: CallOptions,
        mut job: impl FnMut(&unisono::Group) -> Result<CallOutcome> + Send + 'static,
    ) -> PyResult<Py<PyAny>> {
        let adjusted = self.adjusted(options);
        let group = adjusted.as_ref().unwrap_or(&self.group);
        if !options.wait {
            let started = group.start(move |group| guard(operation, || job(group)));
            return Ok(Py::new(py, Pending::new(operation, Box::new(started)))?.into_any());
        }
        // The job holds the caller's arrays and is dropped after the GIL is reacquired.
        py.detach(|| guard(operation, || job(group))).or_raise(py)?.into_python(py)
    }

    /// The group with the call's timeout and determinism, if they differ from the defaults.
    fn adjusted(&self, options: CallOptions) -> Option<unisono::Group> {
        let group = options.timeout.map(|limit| self.group.with_timeout(limit));
        match options.deterministic {
            true => Some(group.as_ref().unwrap_or(&self.group).deterministic(true)),
            false => group,
        }
    }

    /// Parses the arguments of a message, which is not collective and not counted.
    fn parse_message(
        &self,
        operation: &'static str,
        (peer, tag): (Arg<'_, '_>, Arg<'_, '_>),
        args: CallArgs<'_, '_>,
    ) -> PyResult<(usize, u32, CallOptions)> {
        self.liveness.check(operation).or_raise(args.py())?;
        let tag = number(tag, operation, "a tag from 0 to 2147483647", "choose another tag")?;
        Ok((self.rank_of(peer, operation)?, tag, args.parse(operation)?))
    }

    /// Starts a message: messages are sent in the order of the calls, and a delayed one does not block collectives.
    fn start_message(
        &self,
        py: Python<'_>,
        operation: &'static str,
        options: CallOptions,
        start: impl FnOnce(&unisono::Group) -> Result<Box<dyn Running>>,
    ) -> PyResult<Py<PyAny>> {
        let adjusted = self.adjusted(options);
        let group = adjusted.as_ref().unwrap_or(&self.group);
        let started = guard(operation, || start(group)).or_raise(py)?;
        Ok(Py::new(py, Pending::new(operation, started))?.into_any())
    }

    /// Parses a member's rank in the group.
    fn rank_of(&self, member: Arg<'_, '_>, operation: &str) -> PyResult<usize> {
        let size = self.group.size();
        member.extract().ok().filter(|&rank| rank < size).ok_or_else(|| {
            let advice = format!("{} has {size} ranks", self.group.name());
            rejected(member, operation, &format!("a rank from 0 to {}", size - 1), &advice)
        })
    }

    /// Creates a subgroup within `limit`; the new group has the timeout of this one.
    fn make_subgroup(
        &self,
        py: Python<'_>,
        operation: &'static str,
        limit: Option<Duration>,
        make: impl FnOnce(&unisono::Group) -> Result<Option<unisono::Group>> + Send,
    ) -> PyResult<Option<Group>> {
        let group = limit.map_or_else(|| self.handle(), |limit| self.group.with_timeout(limit));
        let made = py.detach(|| guard(operation, || make(&group))).or_raise(py)?;
        let with_default_timeout = |made: unisono::Group| match limit {
            Some(_) => made.with_timeout(self.group.timeout()),
            None => made,
        };
        Ok(made.map(|made| Group::new(&with_default_timeout(made), self.liveness.clone())))
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

    /// Not counted, not even if it is rejected: ranks that are not members need not call it.
    fn subgroup(&self, members: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<Option<Group>> {
        self.liveness.check("group").or_raise(members.py())?;
        let many = members.try_iter().map_err(|_| {
            rejected(members, "group", "a list of ranks as members", "write [0, 1], or range(2)")
        })?;
        let members = many.map(|one| self.rank_of(&one?, "group")).collect::<PyResult<Vec<_>>>()?;
        let limit = seconds(timeout, "group")?;
        self.make_subgroup(timeout.py(), "group", limit, |group| group.subgroup(&members))
    }

    fn split(&self, color: Arg<'_, '_>, key: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<Option<Group>> {
        let (color, key, limit) = self.prepare(key.py(), "split", |operation| {
            let parse = |color| number(color, operation, "a color from 0 up", "pass None to join no group");
            let color = (!color.is_none()).then(|| parse(color)).transpose()?;
            let key = number(key, operation, "a key of at most 64 bits", "choose another key")?;
            Ok((color, key, seconds(timeout, operation)?))
        })?;
        self.make_subgroup(timeout.py(), "split", limit, |group| group.split(color, key))
    }

    /// The path that CUDA memory takes between the ranks, each on the device that it passes.
    fn cuda_path(&self, device: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<&'static str> {
        let py = device.py();
        let (device, timeout) = self.prepare(py, "cuda_path", |operation| {
            let expected = "the number of a device, from 0 up";
            let device: u32 = number(device, operation, expected, "leave it out for the current one")?;
            nvidia::add_package_folders(py)?;
            Ok((device, seconds(timeout, operation)?))
        })?;
        let adjusted = self.adjusted(CallOptions { wait: true, timeout, deterministic: false });
        let group = adjusted.as_ref().unwrap_or(&self.group);
        py.detach(|| guard("cuda_path", || group.raw().path(device))).or_raise(py)
    }

    fn barrier(&self, wait: Arg<'_, '_>, timeout: Arg<'_, '_>) -> PyResult<Py<PyAny>> {
        self.collective("barrier", CallArgs::new(wait, timeout), |_| {
            Ok(|group: &unisono::Group| group.barrier().map(|()| CallOutcome::Nothing))
        })
    }

    fn broadcast(
        &self,
        x: Arg<'_, '_>,
        root: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("broadcast", CallArgs::new(wait, timeout), |operation| {
            let (root, x) = (self.rank_of(root, operation)?, AnyArray::in_place(x, operation)?);
            Ok(in_place::in_place(x, move |raw, x, dtype| raw.broadcast(x, dtype, root)))
        })
    }

    fn all_reduce(
        &self,
        x: Arg<'_, '_>,
        op: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
        deterministic: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("all_reduce", CallArgs::reduction(wait, timeout, deterministic), |operation| {
            let (op, x) = (parse_reduce_op(op, operation)?, AnyArray::in_place(x, operation)?);
            Ok(in_place::in_place(x, move |raw, x, dtype| raw.all_reduce(x, dtype, op)))
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn reduce(
        &self,
        x: Arg<'_, '_>,
        op: Arg<'_, '_>,
        root: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
        deterministic: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("reduce", CallArgs::reduction(wait, timeout, deterministic), |operation| {
            let (root, op) = (self.rank_of(root, operation)?, parse_reduce_op(op, operation)?);
            let array = match root == self.group.rank() {
                true => AnyArray::in_place(x, operation)?,
                false => AnyArray::like_in_place(x, operation)?,
            };
            Ok(in_place::in_place(array, move |raw, x, dtype| raw.reduce(x, dtype, op, root)))
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn reduce_to(
        &self,
        x: Arg<'_, '_>,
        op: Arg<'_, '_>,
        root: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
        deterministic: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("reduce", CallArgs::reduction(wait, timeout, deterministic), |operation| {
            let (root, op) = (self.rank_of(root, operation)?, parse_reduce_op(op, operation)?);
            Ok(out_of_place::reduce(AnyArray::input(x, operation)?, op, root))
        })
    }

    fn scan(
        &self,
        x: Arg<'_, '_>,
        op: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("scan", CallArgs::new(wait, timeout), |operation| {
            let (op, x) = (parse_reduce_op(op, operation)?, AnyArray::in_place(x, operation)?);
            Ok(in_place::in_place(x, move |raw, x, dtype| raw.scan(x, dtype, op)))
        })
    }

    fn gather(
        &self,
        x: Arg<'_, '_>,
        root: Arg<'_, '_>,
        varied: Arg<'_, '_>,
        out: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("gather", CallArgs::new(wait, timeout), |operation| {
            let (root, varied) = (self.rank_of(root, operation)?, flag(varied, operation, "varied")?);
            let out = given(out).filter(|_| root == self.group.rank());
            let (input, to) = input_and_output(x, out, operation)?;
            out_of_place::gather(input, Some(root), varied, to, operation).or_raise(x.py())
        })
    }

    fn all_gather(
        &self,
        x: Arg<'_, '_>,
        varied: Arg<'_, '_>,
        out: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("all_gather", CallArgs::new(wait, timeout), |operation| {
            let varied = flag(varied, operation, "varied")?;
            let (mut input, to) = (AnyArray::input(x, operation)?, Destination::of(given(out), operation)?);
            if varied || !to.has_part(&input, self.group.rank(), self.group.size()) {
                input = to.apart_from(x.py(), input, operation)?;
            }
            out_of_place::gather(input, None, varied, to, operation).or_raise(x.py())
        })
    }

    fn scatter(
        &self,
        x: Arg<'_, '_>,
        root: Arg<'_, '_>,
        out: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("scatter", CallArgs::new(wait, timeout), |operation| {
            let (root, to) = (self.rank_of(root, operation)?, Destination::of(given(out), operation)?);
            let (array, placement) = match (root == self.group.rank(), given(x)) {
                (true, Some(x)) => {
                    (Some(to.apart_from(x.py(), AnyArray::input(x, operation)?, operation)?), None)
                }
                (true, None) => {
                    return Err(rejected(x, operation, "an array at the root", "pass it as x on that rank"));
                }
                (false, Some(like)) => (None, Some(ResultPlacement::of(like, operation)?)),
                (false, None) => (None, None),
            };
            out_of_place::scatter(array, root, placement, to).or_raise(x.py())
        })
    }

    fn reduce_scatter(
        &self,
        x: Arg<'_, '_>,
        op: Arg<'_, '_>,
        out: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
        deterministic: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("reduce_scatter", CallArgs::reduction(wait, timeout, deterministic), |operation| {
            let op = parse_reduce_op(op, operation)?;
            let (input, to) = input_and_output(x, given(out), operation)?;
            out_of_place::reduce_scatter(input, op, to).or_raise(x.py())
        })
    }

    fn all_to_all(
        &self,
        x: Arg<'_, '_>,
        splits: Arg<'_, '_>,
        out: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("all_to_all", CallArgs::new(wait, timeout), |operation| {
            let expected = "the numbers of rows to send and to receive, one for each rank";
            let splits = given(splits).map(|splits| number(splits, operation, expected, "pass two lists"));
            let (input, to) = input_and_output(x, given(out), operation)?;
            out_of_place::all_to_all(input, self.group.size(), splits.transpose()?, to).or_raise(x.py())
        })
    }

    /// `parts` is a list or a tuple.
    fn all_to_all_varied(
        &self,
        parts: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        self.collective("all_to_all", CallArgs::new(wait, timeout), |operation| {
            let views = parts.try_iter()?.map(|part| AnyArray::input(&part?, operation));
            let views = views.collect::<PyResult<Vec<_>>>()?;
            out_of_place::all_to_all_varied(views, self.group.size()).or_raise(parts.py())
        })
    }

    fn send(
        &self,
        x: Arg<'_, '_>,
        to: Arg<'_, '_>,
        tag: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let (to, tag, options) = self.parse_message("send", (to, tag), CallArgs::new(wait, timeout))?;
        let array = AnyArray::input(x, "send")?;
        if options.wait {
            return self.run(x.py(), "send", options, in_place::send(array, to, tag));
        }
        self.start_message(x.py(), "send", options, |group| in_place::start_send(group, array, to, tag))
    }

    fn recv(
        &self,
        x: Arg<'_, '_>,
        source: Arg<'_, '_>,
        tag: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let (from, tag, options) = self.parse_message("recv", (source, tag), CallArgs::new(wait, timeout))?;
        let array = AnyArray::in_place(x, "recv")?;
        if options.wait {
            let job = in_place::in_place(array, move |raw, x, dtype| raw.recv(x, dtype, from, tag));
            return self.run(x.py(), "recv", options, job);
        }
        self.start_message(x.py(), "recv", options, |group| in_place::start_recv(group, array, from, tag))
    }

    /// Sends and receives at the same time. Nothing is sent before all arguments are accepted.
    fn sendrecv(
        &self,
        x: Arg<'_, '_>,
        to: Arg<'_, '_>,
        out: Arg<'_, '_>,
        source: Arg<'_, '_>,
        tag: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<()> {
        let (py, operation) = (x.py(), "sendrecv");
        let wait = PyBool::new(py, true).to_owned().into_any();
        let (to, tag, options) = self.parse_message(operation, (to, tag), CallArgs::new(&wait, timeout))?;
        let from = self.rank_of(source, operation)?;
        let out = AnyArray::in_place(out, operation)?;
        let input = input_apart_from(py, AnyArray::input(x, operation)?, &out, operation)?;
        let sent =
            self.start_message(py, "send", options, |group| in_place::start_send(group, input, to, tag))?;
        let receive = in_place::in_place(out, move |raw, out, dtype| raw.recv(out, dtype, from, tag));
        self.run(py, "recv", options, receive)?;
        sent.call_method1(py, intern!(py, "wait"), (py.None(),)).map(drop)
    }

    /// Receives from any rank; the result is the sender.
    fn recv_any(
        &self,
        x: Arg<'_, '_>,
        tag: Arg<'_, '_>,
        wait: Arg<'_, '_>,
        timeout: Arg<'_, '_>,
    ) -> PyResult<Py<PyAny>> {
        let own = self.group.rank().into_pyobject(x.py())?;
        let (_, tag, options) = self.parse_message("recv", (&own, tag), CallArgs::new(wait, timeout))?;
        let mut view = View::in_place(x, "recv")?;
        if options.wait {
            return self.run(x.py(), "recv", options, move |group| {
                let dtype = view.dtype;
                group.raw().recv_any(view.bytes_mut(), dtype, tag).map(CallOutcome::Rank)
            });
        }
        self.start_message(x.py(), "recv", options, |group| in_place::start_recv_any(group, view, tag))
    }
}
