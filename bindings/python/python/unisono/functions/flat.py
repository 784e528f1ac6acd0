"""Flattens the arrays of many parameters into one vector, in PyTensor graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt


def flatten_vars(variables: Sequence[Any]) -> Any:
    """Concatenates all elements into one vector, variable after variable.

    Args:
        variables: Symbolic arrays.

    Returns:
        A symbolic vector.
    """
    return pt.concatenate([variable.ravel() for variable in variables])


def vars_flat_size(variables: Sequence[Any]) -> int:
    """The total number of elements of shared variables.

    Args:
        variables: The variables.

    Returns:
        The number of elements.
    """
    return sum(int(np.prod(variable.get_value(borrow=True).shape)) for variable in variables)


def unflatten_vars(flat: Any, variables: Sequence[Any]) -> list[Any]:
    """Splits a vector into pieces shaped like shared variables.

    Args:
        flat: A symbolic vector.
        variables: The variables.

    Returns:
        A symbolic array for each variable.
    """
    pieces, start = [], 0
    for variable in variables:
        shape = variable.get_value(borrow=True).shape
        stop = start + int(np.prod(shape))
        pieces.append(flat[start:stop].reshape(shape))
        start = stop
    return pieces


def flat_unflat_grads(loss: Any, params: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """The gradients of a loss in one shared vector.

    Args:
        loss: A symbolic scalar.
        params: The shared variables to differentiate with respect to.

    Returns:
        The vector of this worker's gradients, the shared vector that stores it, and pieces of the shared
        vector shaped like the parameters.
    """
    vector = flatten_vars(pt.grad(loss, list(params)))
    held = pytensor.shared(np.zeros(vars_flat_size(params), vector.dtype), name="flat_gradient")
    return vector, held, unflatten_vars(held, params)


def nonflat_grads(loss: Any, params: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The gradients of a loss, each in a shared variable of its own.

    Args:
        loss: A symbolic scalar.
        params: The shared variables to differentiate with respect to.

    Returns:
        The gradients, and the shared variables that store them.
    """
    gradients = pt.grad(loss, list(params))
    held = [pytensor.shared(np.zeros_like(one.get_value(borrow=True)), name="gradient") for one in params]
    return gradients, held
