"""Training steps: gradients on every worker, one all_reduce, and the same parameter update everywhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.functions.collectives import all_reduce, broadcast
from unisono.functions.factory import function
from unisono.functions.function_object import Function
from unisono.functions.pool import active
from unisono.functions.rules import choose


class TrainFunction:
    """A training step; created by `make_train_function`."""

    def __init__(
        self,
        gradient: Any,
        apply: Any,
        vector: Any,
        operation: str,
        rate: Any = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.gradient = gradient
        """The function that computes the loss and this worker's gradient."""
        self.apply = apply
        """The function that updates the parameters."""
        self.vector = vector
        """The shared vector of all gradients."""
        self._operation, self._rate, self._check = operation, rate, check

    def __repr__(self) -> str:
        return f"<unisono.functions.TrainFunction: {self.gradient.name}>"

    @property
    def learning_rate(self) -> float:
        """The step size; an assigned value applies from the next step on."""
        return float(self._shared_rate().get_value())

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        rate = self._shared_rate()
        broadcast(rate, np.asarray(value, rate.get_value().dtype))

    def _shared_rate(self) -> Any:
        if self._rate is None:
            raise AttributeError(
                "learning_rate: a graph has its learning rate in it; to change it, make the function with a "
                "shared variable of PyTensor as its learning rate, and broadcast() that"
            )
        return self._rate

    def build_inputs(self, *arrays: Any, **options: Any) -> Any:
        """Creates `Data` objects for the inputs of the loss, as `Function.build_inputs` does.

        Args:
            *arrays: Arrays, one for each input.
            **options: As for `Function.build_inputs`.

        Returns:
            One `Data`, or a tuple of them.
        """
        return self.gradient.build_inputs(*arrays, **options)

    def __call__(self, *inputs: Any, wait: bool = True, **options: Any) -> Any:
        """Performs one step.

        Args:
            *inputs: The inputs of the loss, as `Data` or as NumPy arrays, which are copied.
            wait: Whether to wait for the result, as for `Function`.
            **options: `batch`, `shared_batch` and other options, as for `Function`.

        Returns:
            The loss before the step, averaged over all workers; a `concurrent.futures.Future` of it if `wait`
            is false.

        Raises:
            ValueError: The module's parameters, their `requires_grad` or their type have changed since this
                function was created.
        """
        pool = active(f"function {self.gradient.name!r}")
        held = [self.gradient._as_data(at, one) for at, one in enumerate(inputs)]
        call = functools.partial(self._step, held, options)
        return call() if wait else pool.submit(call)

    def _step(self, inputs: list[Any], options: dict[str, Any]) -> Any:
        with active(f"function {self.gradient.name!r}").lock:
            if self._check is not None:
                self._check()
            loss = self.gradient(*inputs, **options)
            all_reduce(self.vector, self._operation)
            self.apply()
            return loss


def make_train_function(
    loss: Any,
    params: Any,
    x: Any = None,
    y: Any = None,
    update_rule: Any = "sgd",
    *args: Any,
    weighted: bool = False,
    **kwargs: Any,
) -> TrainFunction:
    """Creates a function that trains on a minibatch.

    Args:
        loss: A symbolic scalar that depends on `x` and `y`; or, for PyTorch and JAX, a callable of `x` and
            `y` that returns the mean loss of its rows. For JAX it also receives the parameters by name.
        params: The shared variables to train; for PyTorch a module, for JAX shared arrays.
        x: The symbolic input; or a shared variable with the workers' own data, of which `shared_batch`
            selects rows.
        y: The targets, in the same form.
        update_rule: The name of a rule, such as "adam", with the formula, the settings and the defaults of
            `torch.optim`; or a function of `unisono.functions.updates`, with those of Lasagne.
        *args: Settings of the rule by position; the first is the learning rate.
        weighted: Whether workers are weighted by their rows: the step then equals that of a single worker.
        **kwargs: Settings of the rule by name, such as `lr` (or `learning_rate`).

    Returns:
        A function of two `Data` objects (of none if `x` and `y` are shared) that performs one step and
        returns the loss.
    """
    if callable(loss) and not hasattr(loss, "owner"):
        from unisono.functions import train_callables

        return train_callables.make(loss, params, [x, y], update_rule, args, weighted, kwargs)
    from unisono.functions import updates
    from unisono.functions.with_pytensor import is_shared

    by_name = isinstance(update_rule, str)
    counts = weighted or (x is not None and (by_name or "rows" in inspect.signature(update_rule).parameters))
    # Workers are weighted by their rows, or equally among those that have rows.
    rows = None if not counts else x.shape[0] if weighted else x.shape[0].clip(0, 1)
    if by_name:
        rule, settings = choose(update_rule, args, kwargs)
        first, second, vector = updates.apply_rule(rule, loss, params, rows, settings)
    else:
        own = {"rows": rows} if counts else {}
        first, second, vector = update_rule(loss, params, *args, **kwargs, **own)
    given = [one for one in (x, y) if one is not None]
    inputs = [one for one in given if not is_shared(one)]
    gradient = function(
        inputs,
        loss,
        updates=first,
        sliceable_shareds=[one for one in given if is_shared(one)],
        weighted=weighted,
        name=f"gradient of {loss.name or 'loss'}",
    )
    apply = function([], updates=second, name=f"step of {loss.name or 'loss'}")
    return TrainFunction(gradient, apply, vector, "sum" if counts else "avg")


def refresh(target: Function | TrainFunction) -> None:
    """Sends a function to the workers again before its next call, with everything that it captures.

    Calls do so themselves when something that a function captures has changed. It is for changes that they
    cannot detect: in the state of optimizers, and in memory that other libraries own.

    Args:
        target: The function, or the training function. Shared variables keep their values; `broadcast`
            those.

    Example:
        >>> from unisono import functions
        >>> functions.start(2)
        2
        >>> f = functions.function(lambda: None)
        >>> functions.refresh(f)
        >>> functions.close()
    """
    for one in (target.gradient, target.apply) if isinstance(target, TrainFunction) else (target,):
        one._refresh()
