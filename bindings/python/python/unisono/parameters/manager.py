"""The manager: it keeps a model's parameters synchronized with those of the other workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np

from unisono.errors import UsageError
from unisono.parameters.adapter import Callables, Parameters, Values
from unisono.parameters.exchange import Averaging, Exchange, ThroughTable, padded, table_of
from unisono.parameters.gradients import reduce_gradients
from unisono.parameters.layout import ParameterLayout, agree
from unisono.parameters.recognition import recognise
from unisono.parameters.replica import Replica, write
from unisono.parameters.step import Steps
from unisono.parameters.weights import factor_of
from unisono.tables.names import Consistency, Updater
from unisono.worlds import world

MODES = ("delta", "average", "gradients")


class ParameterManager:
    """Keeps the parameters of a model synchronized between workers. Every rank makes it.

    With ``mode="delta"`` all parameters are in one table. A sync adds this worker's changes since its last
    sync, and gets the resulting values: the changes of all workers add up. With ``mode="average"`` a sync
    replaces every worker's parameters by their average. With ``mode="gradients"`` a sync combines gradients,
    before the optimizer uses them. All workers start with the values of worker 0.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> weights = np.zeros(3, dtype="float32")
        >>> manager = uni.ParameterManager([weights])
        >>> weights += 1  # a step of training
        >>> manager.sync()
        True
        >>> weights  # with more workers, the sum of their steps
        array([1., 1., 1.], dtype=float32)
        >>> manager
        <unisono.ParameterManager of 1 parameter, 3 elements, delta, every 1>
    """

    def __init__(
        self,
        model: Any = None,
        *,
        mode: str = "delta",
        every: int = 1,
        background: bool = False,
        name: str | None = None,
        updater: Updater = "add",
        consistency: Consistency = "async",
        op: Literal["avg", "sum"] = "avg",
        get: Callable[[], Sequence[Any]] | None = None,
        set: Callable[[list[Values]], Any] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Makes the manager, together with all other ranks; the model then has the values of worker 0.

        Args:
            model: A PyTorch module, a Keras model, a JAX pytree or Flax module, a list of PyTensor shared
                variables, a Lasagne network, a list or dictionary of NumPy arrays, or a `Parameters` of your
                own.
            mode: "delta", "average" or "gradients".
            every: Only one in this many calls of `sync` exchanges anything.
            background: Whether the exchange runs concurrently with the next steps. Its result is applied
                before the next step of a PyTorch optimizer, or else at the next sync that exchanges; local
                changes made meanwhile are kept.
            name: The table's name, for checkpoints and restarts.
            updater: How the table applies a change; see `ArrayTable`.
            consistency: How far workers may drift apart: "async", "ssp:3", "bsp"; see `ArrayTable`.
            op: How gradients are combined: "avg" or "sum".
            get: For anything else: a function that returns the parameters as a list of arrays.
            set: A function that takes such a list and writes it to the model.
            timeout: Seconds until a call times out.
            options: Other options of `ArrayTable`, such as ``compression="float16"``.

        Raises:
            UsageError: The model is unknown, has parameters that cannot be shared, or differs between
                workers.
        """
        if mode not in MODES:
            raise UsageError(f"ParameterManager: expected a mode of {', '.join(MODES)}, received {mode!r}")
        if not isinstance(every, int) or every < 1:
            raise UsageError(f"ParameterManager: expected every to be 1 or more, received {every!r}")
        if mode == "delta" and str(consistency).startswith("average"):
            raise UsageError(
                'ParameterManager: expected "async", "ssp:3" or "bsp", received the consistency "average"; '
                'use mode="average"'
            )
        self._world = world()
        self._mode, self._every, self._timeout = mode, every, timeout
        self._parameters: Parameters | None = None
        self._background = background and mode != "gradients"
        self._op = op
        self._calls = 0
        self._weight: float | None = None
        self._exchange: Exchange | None = None
        self._replica: Replica | None = None
        with self._world._series():  # a restarted worker finds the table instead of repeating these calls
            self._layout: ParameterLayout = self._agree(lambda: _parameters(model, get, set))
            what = f"ParameterManager of {len(self._layout.names)} parameters"
            self._steps = Steps(self._world, what, timeout)
            self._start(name, updater=updater, consistency=consistency, timeout=timeout, **options)

    def _agree(self, recognised: Callable[[], Parameters]) -> ParameterLayout:
        """The layout of all workers' parameters; a model that is unknown on one rank is an error on all."""

        def describe() -> ParameterLayout:
            self._parameters = recognised()
            return ParameterLayout.of(self._parameters)

        is_worker = self._world.worker_id is not None
        if self._world.restarts and is_worker:
            # The other ranks are in the middle of their work; the table itself compares sizes.
            return describe()
        return agree(describe if is_worker else None, self._world, self._timeout)

    def _start(self, name: str | None, **options: Any) -> None:
        """Creates the exchange and copies worker 0's values to the model."""
        self._padded = padded(self._layout.size, options["consistency"])
        first = self._buffer()
        if self._parameters is not None:
            for part, value in zip(self._layout.views(first), self._parameters.read(), strict=True):
                part[...] = value
        if self._mode == "delta":
            table = table_of(first, name=name, **options)
            self._exchange = ThroughTable(table, self._timeout)
            if self._parameters is not None:
                table.get(out=first.reshape(table.shape), timeout=self._timeout)
                self._steps.meet()  # before the first worker changes the table
        else:
            if self._parameters is not None:
                self._steps.workers.broadcast(first, timeout=self._timeout)
            if self._mode == "average":
                self._exchange = Averaging(self._steps.workers, self._timeout)
        if self._parameters is not None:
            write(self._parameters, self._layout.views(first))
            if self._exchange is not None:
                self._replica = Replica(self._parameters, self._layout, self._exchange, self._buffer, first)
                if self._background:
                    self._replica.swap()

    def _buffer(self) -> Values:
        """Memory for all parameters; if it is averaged, in memory that is reduced without a copy."""
        if self._mode == "average":
            shared: Values = self._world.empty(self._layout.size, self._layout.dtype)
            return shared
        buffer: Values = np.zeros(self._padded, self._layout.dtype)
        return buffer

    @property
    def model(self) -> Any:
        """The model, for frameworks whose models are replaced rather than changed."""
        return getattr(self._parameters, "model", None)

    @property
    def table(self) -> Any:
        """In mode "delta", the table that holds all parameters consecutively; otherwise None.

        It is an `ArrayTable`; for a large model a `MatrixTable`, whose last row may be longer than needed.
        """
        return getattr(self._exchange, "table", None)

    def __repr__(self) -> str:
        count, size = len(self._layout.names), self._layout.size
        beside = ", in the background" if self._background else ""
        return (
            f"<unisono.ParameterManager of {count} parameter{'s' * (count != 1)}, {size} elements, "
            f"{self._mode}, every {self._every}{beside}>"
        )

    def sync(self, model: Any = None, *, weight: float | None = None) -> bool:
        """Exchanges with the other workers, once in every `every` calls.

        Args:
            model: The current model, for frameworks whose models are replaced rather than changed.
            weight: For modes that average: this worker's weight, such as the number of rows of its batch. The
                weights of calls that do not exchange add up. Pass it on all workers or on none.

        Returns:
            Whether this call exchanged anything.

        Raises:
            UsageError: The world was shut down, the model has changed shape, or workers are out of step.
        """
        self._steps.check("sync", self._parameters)
        if model is not None:
            self._replace(model)
        self._weigh(weight)
        self._calls += 1
        if self._calls % self._every:
            return False
        if self._replica is None:
            self._reduce_gradients()
            return True
        if self._average("sync"):
            return True
        values = self._read()
        self._in_step("sync")
        if self._replica.busy:
            self._replica.take(values)
            values = self._read()
        if self._background:
            self._replica.begin(values)
        else:
            self._replica.exchange(values)
        return True

    def flush(self) -> None:
        """Exchanges at once, regardless of `every`, and waits for the result."""
        self._steps.check("flush", self._parameters)
        self._calls = 0
        if self._replica is None:
            return
        if self._average("flush"):
            return
        values = self._read()
        self._in_step("flush")
        if self._replica.busy:
            self._replica.take(values)
            values = self._read()
        self._replica.exchange(values)

    def close(self) -> None:
        """Applies the result of a pending exchange and closes the manager; the model keeps its values."""
        if self._steps.closed:
            return
        try:
            if self._steps.alive and self._replica is not None:
                self._in_step("close")
                if self._replica.busy:
                    self._replica.take(self._read())
        finally:
            self._release()
            self._replica = self._exchange = None

    def __enter__(self) -> ParameterManager:  # noqa: PYI034
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            if not self._steps.closed:
                self.flush()
            self.close()
        else:
            # The other workers may never reach the call in which this worker would wait for them.
            self._release()

    def _release(self) -> None:
        self._steps.closed = True
        if self._replica is not None:
            self._replica.close()

    def _read(self) -> list[Values]:
        assert self._parameters is not None
        values = self._parameters.read()
        self._steps.same_model(self._layout, values)
        return values

    def _replace(self, model: Any) -> None:
        replace = getattr(self._parameters, "replace", None)
        if replace is None:
            raise UsageError(
                f"rank {self._world.rank}: sync: expected no model, because this one is changed in place, "
                "received one; call sync()"
            )
        replace(model)

    def _weigh(self, weight: float | None) -> None:
        if weight is None:
            return
        if self._mode == "delta" or (self._mode == "gradients" and self._op != "avg"):
            raise UsageError(
                f"rank {self._world.rank}: sync: expected no weight where nothing is averaged, received "
                f'{weight}; use mode="average", or mode="gradients" with op="avg"'
            )
        self._weight = weight if self._weight is None else self._weight + weight

    def _factor(self) -> float:
        """This worker's factor in the average at hand."""
        weight, self._weight = self._weight, None
        return 1.0 if weight is None else factor_of(weight, self._steps.workers, "sync", self._timeout)

    def _average(self, action: str) -> bool:
        """Averages with the adapter's own method, if it has one, and not in the background."""
        average = getattr(self._parameters, "average", None)
        if average is None or self._background or not isinstance(self._exchange, Averaging):
            return False
        self._in_step(action)
        factor, self._exchange.factor = self._exchange.factor, 1.0
        average(self._steps.workers, factor, self._timeout)
        return True

    def _reduce_gradients(self) -> None:
        assert self._parameters is not None
        own = getattr(self._parameters, "reduce_gradients", None)
        gradients = getattr(self._parameters, "gradients", None)
        if own is not None:
            own(self._steps.workers, self._op, self._factor(), self._timeout)
        elif gradients is not None:
            names, factor = self._layout.names, self._factor()
            reduce_gradients(names, gradients(), self._steps.workers, self._op, factor, self._timeout)
        else:
            raise UsageError(
                f'rank {self._world.rank}: sync: expected a model that has gradients for mode "gradients", '
                "received one that does not keep them; all_reduce them where they are computed"
            )

    def _in_step(self, action: str) -> None:
        """Compares the workers' step counts and weights before an exchange."""
        if self._exchange is not None and self._exchange.in_step:
            self._steps.compare(action)
        if isinstance(self._exchange, Averaging) and action != "close":
            self._exchange.factor = self._factor()


def _parameters(
    model: Any, get: Callable[[], Sequence[Any]] | None, set: Callable[[list[Values]], Any] | None
) -> Parameters:
    if get is None and set is None:
        return recognise(model)
    if model is not None or get is None or set is None:
        raise UsageError(
            "ParameterManager: expected a model, or both get= and set=, received something else; "
            "pass one of them"
        )
    return Callables(get, set)
