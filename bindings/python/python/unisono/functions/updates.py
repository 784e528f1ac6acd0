"""Update rules for PyTensor graphs, on flat gradients: one vector holds the gradients of all parameters.

Each rule returns three things: updates that write this worker's gradient into the flat vector, updates that
change the parameters by the contents of the vector, and the vector. Between the two, one `all_reduce` of the
vector replaces every worker's gradient by the mean of all.

Names, formulas and defaults are Lasagne's, as in Synkhronos, except for `adamw`, which Lasagne does not have.
The rules that `make_train_function` takes by name are those of `torch.optim`, for graphs as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from unisono.functions.flat import (
    flat_unflat_grads,
    flatten_vars,
    nonflat_grads,
    unflatten_vars,
    vars_flat_size,
)
from unisono.functions.rules import LASAGNE, Rule

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "apply_momentum",
    "apply_nesterov_momentum",
    "flat_unflat_grads",
    "flatten_vars",
    "momentum",
    "nesterov_momentum",
    "nonflat_grads",
    "rmsprop",
    "sgd",
    "sgd_nonflat",
    "unflatten_vars",
    "vars_flat_size",
]

Updates = list[tuple[Any, Any]]


def apply_rule(
    rule: Rule, loss: Any, params: Sequence[Any], rows: Any, settings: dict[str, Any]
) -> tuple[Updates, Updates, Any]:
    """The updates of any rule.

    Args:
        rule: The rule.
        loss: A symbolic scalar.
        params: The shared variables to update.
        rows: As for `sgd`.
        settings: All settings of the rule, as numbers or symbolic.

    Returns:
        As for `sgd`.
    """
    params = list(params)
    count, vector = vars_flat_size(params), flatten_vars(pt.grad(loss, params))
    dtype = vector.dtype
    if rows is None:
        held = pytensor.shared(np.zeros(count, dtype), name="flat_gradient")
        gradient = held
    else:
        # The sum over rows, then the row count: summed over all workers, they give the mean over all rows.
        own = pt.cast(rows, dtype)
        vector = pt.concatenate([pt.switch(pt.eq(own, 0), pt.zeros_like(vector), vector * own), own[None]])
        held = pytensor.shared(np.zeros(count + 1, dtype), name="flat_gradient")
        gradient = held[:-1] / held[-1]
    state = [pytensor.shared(np.zeros((), dtype), name="steps")] if rule.counts else []
    state += [pytensor.shared(np.zeros(count, dtype), name=f"{rule.name}_state") for _ in range(rule.vectors)]
    step, new = rule.formula(pt, gradient, list(state), settings)
    changes = [
        (one, pt.cast(rule.keep(one, settings), one.dtype) + pt.cast(piece, one.dtype))
        for one, piece in zip(params, unflatten_vars(step, params), strict=True)
    ]
    kept = [(old, pt.cast(value, dtype)) for old, value in zip(state, new, strict=True)]
    return [(held, vector)], [*changes, *kept], held


def _apply(
    name: str, loss: Any, params: Sequence[Any], rows: Any, settings: dict[str, Any]
) -> tuple[Updates, Updates, Any]:
    params = list(params)
    dtype = flatten_vars(params).dtype
    constants = {key: _constant(value, dtype) for key, value in settings.items()}
    return apply_rule(LASAGNE[name], loss, params, rows, constants)


def _constant(value: Any, dtype: str) -> Any:
    """A setting that does not widen the type of its operands; symbolic settings stay symbolic."""
    return np.asarray(value, dtype) if isinstance(value, (int, float, np.ndarray, np.generic)) else value


def sgd(
    loss: Any, params: Sequence[Any], learning_rate: Any, *, rows: Any = None
) -> tuple[Updates, Updates, Any]:
    """Gradient descent: p - learning_rate * g.

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        rows: Number of rows over which this worker's loss is the mean; the vectors of all workers must then
            be summed, and the mean over all rows is used. Without it the vectors must be averaged.

    Returns:
        Updates that write the gradient, updates that change the parameters, and the gradient vector.
    """
    return _apply("sgd", loss, params, rows, {"lr": learning_rate})


def momentum(
    loss: Any, params: Sequence[Any], learning_rate: Any, momentum: Any = 0.9, *, rows: Any = None
) -> tuple[Updates, Updates, Any]:
    """Gradient descent with momentum (Polyak 1964).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        momentum: The fraction of the last step to repeat.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    return _apply("momentum", loss, params, rows, {"lr": learning_rate, "momentum": momentum})


def nesterov_momentum(
    loss: Any, params: Sequence[Any], learning_rate: Any, momentum: Any = 0.9, *, rows: Any = None
) -> tuple[Updates, Updates, Any]:
    """Gradient descent with Nesterov's momentum (Sutskever et al. 2013).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        momentum: The fraction of the last step to repeat.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {"lr": learning_rate, "momentum": momentum}
    return _apply("nesterov_momentum", loss, params, rows, settings)


def adagrad(
    loss: Any, params: Sequence[Any], learning_rate: Any = 1.0, epsilon: Any = 1e-6, *, rows: Any = None
) -> tuple[Updates, Updates, Any]:
    """AdaGrad: steps that shrink with all past gradients (Duchi et al. 2011).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        epsilon: Keeps the divisor positive.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    return _apply("adagrad", loss, params, rows, {"lr": learning_rate, "eps": epsilon})


def rmsprop(
    loss: Any,
    params: Sequence[Any],
    learning_rate: Any = 1.0,
    rho: Any = 0.9,
    epsilon: Any = 1e-6,
    *,
    rows: Any = None,
) -> tuple[Updates, Updates, Any]:
    """RMSProp: steps that shrink with recent gradients (Tieleman and Hinton 2012).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        rho: Decay rate of the gradient average.
        epsilon: Keeps the divisor positive.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {"lr": learning_rate, "rho": rho, "eps": epsilon}
    return _apply("rmsprop", loss, params, rows, settings)


def adadelta(
    loss: Any,
    params: Sequence[Any],
    learning_rate: Any = 1.0,
    rho: Any = 0.95,
    epsilon: Any = 1e-6,
    *,
    rows: Any = None,
) -> tuple[Updates, Updates, Any]:
    """Adadelta: steps in the units of the parameters (Zeiler 2012).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        rho: Decay rate of the averages of gradients and steps.
        epsilon: Keeps divisors positive.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {"lr": learning_rate, "rho": rho, "eps": epsilon}
    return _apply("adadelta", loss, params, rows, settings)


def adam(
    loss: Any,
    params: Sequence[Any],
    learning_rate: Any = 0.001,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    *,
    rows: Any = None,
) -> tuple[Updates, Updates, Any]:
    """Adam: steps from the first two moments of the gradient (Kingma and Ba 2014).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        beta1: Decay rate of the first moment.
        beta2: Decay rate of the second moment.
        epsilon: Keeps the divisor positive.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {"lr": learning_rate, "beta1": beta1, "beta2": beta2, "eps": epsilon}
    return _apply("adam", loss, params, rows, settings)


def adamw(
    loss: Any,
    params: Sequence[Any],
    learning_rate: Any = 0.001,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    weight_decay: Any = 0.01,
    *,
    rows: Any = None,
) -> tuple[Updates, Updates, Any]:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update; weight decay applies to all of them.
        learning_rate: The step size.
        beta1: Decay rate of the first moment.
        beta2: Decay rate of the second moment.
        epsilon: Keeps the divisor positive.
        weight_decay: The fraction of a parameter, times the learning rate, that each step subtracts.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {
        "lr": learning_rate,
        "beta1": beta1,
        "beta2": beta2,
        "eps": epsilon,
        "weight_decay": weight_decay,
    }
    return _apply("adamw", loss, params, rows, settings)


def adamax(
    loss: Any,
    params: Sequence[Any],
    learning_rate: Any = 0.002,
    beta1: Any = 0.9,
    beta2: Any = 0.999,
    epsilon: Any = 1e-8,
    *,
    rows: Any = None,
) -> tuple[Updates, Updates, Any]:
    """AdaMax: Adam with the largest gradient instead of the second moment (Kingma and Ba 2014).

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.
        beta1: Decay rate of the first moment.
        beta2: Decay rate of the largest gradient.
        epsilon: Keeps the divisor positive.
        rows: As for `sgd`.

    Returns:
        As for `sgd`.
    """
    settings = {"lr": learning_rate, "beta1": beta1, "beta2": beta2, "eps": epsilon}
    return _apply("adamax", loss, params, rows, settings)


def apply_momentum(updates: Any, params: Sequence[Any] | None = None, momentum: Any = 0.9) -> Updates:
    """Adds momentum to parameter updates.

    Args:
        updates: Pairs of a variable and its new value.
        params: The variables that get momentum; by default all.
        momentum: The fraction of the last step to repeat.

    Returns:
        New updates, including those of the velocities.
    """
    return _wrap(updates, params, momentum, nesterov=False)


def apply_nesterov_momentum(
    updates: Any, params: Sequence[Any] | None = None, momentum: Any = 0.9
) -> Updates:
    """Adds Nesterov's momentum to parameter updates.

    Args:
        updates: Pairs of a variable and its new value.
        params: The variables that get momentum; by default all.
        momentum: The fraction of the last step to repeat.

    Returns:
        New updates, including those of the velocities.
    """
    return _wrap(updates, params, momentum, nesterov=True)


def _wrap(updates: Any, params: Sequence[Any] | None, momentum: Any, nesterov: bool) -> Updates:
    pairs = list(updates.items()) if isinstance(updates, Mapping) else list(updates)
    chosen = {id(one) for one in (params if params is not None else [variable for variable, _ in pairs])}
    found: Updates = []
    for variable, new in pairs:
        if id(variable) not in chosen:
            found.append((variable, new))
            continue
        velocity = pytensor.shared(np.zeros_like(variable.get_value(borrow=True)), name="velocity")
        constant = _constant(momentum, variable.dtype)
        moved = constant * velocity + new - variable
        found.append((velocity, moved))
        found.append((variable, constant * moved + new if nesterov else variable + moved))
    return found


def sgd_nonflat(loss: Any, params: Sequence[Any], learning_rate: Any) -> tuple[Updates, Updates, list[Any]]:
    """Gradient descent with a separate shared variable for the gradient of each parameter.

    Args:
        loss: A symbolic scalar.
        params: The shared variables to update.
        learning_rate: The step size.

    Returns:
        Updates that write the gradients, updates that change the parameters, and the gradient variables.
    """
    gradients, held = nonflat_grads(loss, params)
    rate = [_constant(learning_rate, one.dtype) for one in params]
    changes = [(one, one - own * gradient) for one, own, gradient in zip(params, rate, held, strict=True)]
    return list(zip(held, gradients, strict=True)), changes, held
