"""Training functions, under Synkhronos' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor

from synkhronos.extensions import updates
from synkhronos.legacy import Function
from unisono import functions

__all__ = ["make_train_function", "make_train_function_theano"]


def make_train_function(
    loss: Any, params: Any, x: Any, y: Any, update_rule: Any, *args: Any, **kwargs: Any
) -> functions.TrainFunction:
    """A training step on all workers, as `unisono.functions.make_train_function` makes it.

    Args:
        loss: A symbolic scalar that depends on `x` and `y`.
        params: The shared variables to train.
        x: The symbolic input, or a shared variable with data.
        y: The symbolic targets, or a shared variable with data.
        update_rule: A rule of `synkhronos.extensions.updates`, or its name.
        *args: Further arguments of the rule.
        **kwargs: Further keyword arguments of the rule.

    Returns:
        A function of two `Data` objects that makes one step and returns the loss.
    """
    # By name, unisono.functions has the rules of torch.optim.
    update_rule = getattr(updates, update_rule) if isinstance(update_rule, str) else update_rule
    made = functions.make_train_function(loss, params, x, y, update_rule, *args, **kwargs)
    made.gradient = Function.of(made.gradient)
    return made


def make_train_function_theano(
    loss: Any, params: Any, x: Any, y: Any, update_rule: Any, *args: Any, **kwargs: Any
) -> Callable[..., Any]:
    """The same training step, in this process alone.

    Args:
        loss: A symbolic scalar that depends on `x` and `y`.
        params: The shared variables to train.
        x: The symbolic input.
        y: The symbolic targets.
        update_rule: A rule of `synkhronos.extensions.updates`.
        *args: Further arguments of the rule.
        **kwargs: Further keyword arguments of the rule.

    Returns:
        A function of two arrays, and optionally `batch`, that makes one step and returns the loss.
    """
    first, second, _ = update_rule(loss, params, *args, **kwargs)
    gradient = pytensor.function([x, y], loss, updates=first)
    apply = pytensor.function([], updates=second)

    def train_minibatch(x_data: Any, y_data: Any, batch: Any = None) -> Any:
        rows = slice(None) if batch is None else slice(batch) if isinstance(batch, int) else batch
        value = gradient(x_data[rows], y_data[rows])
        apply()
        return value

    return train_minibatch
