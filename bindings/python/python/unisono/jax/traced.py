"""Collectives inside `jit`, `grad` and `vmap`: an ordered callback on the host, with its adjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from unisono.errors import UsageError

Values = np.ndarray[Any, Any]
Leaves = list[Any]


@dataclass
class Verb:
    """A collective on the leaves of a tree."""

    name: str
    host: Callable[[list[Values]], list[Values]]
    """Makes the call, on the host."""
    shape: Callable[[Any], tuple[int, ...]]
    """The shape of a leaf's result."""
    adjoint: Callable[[Leaves], Leaves] | str
    """The adjoint, applied to gradients; or the reason why there is none."""
    by_element: bool = False
    """Whether each element of the result depends only on the same element of the inputs."""


def call(verb: Verb, leaves: Leaves) -> Leaves:
    """Makes a collective part of the program that JAX traces.

    Args:
        verb: The collective.
        leaves: Arrays, some of which are traced.

    Returns:
        Its results.
    """

    def plain(leaves: Leaves) -> Leaves:
        shapes = [jax.ShapeDtypeStruct(verb.shape(leaf), leaf.dtype) for leaf in leaves]
        results: Leaves = io_callback(verb.host, shapes, leaves, ordered=True)
        return results

    run: Any = custom_vmap(plain)

    def mapped(_size: int, is_mapped: Any, leaves: Leaves) -> tuple[Leaves, Any]:
        if not verb.by_element:
            raise UsageError(
                f"{verb.name}: expected a call outside vmap, received one inside; call it on the whole array"
            )
        return run(leaves), is_mapped[0]

    run.def_vmap(mapped)

    def forward(leaves: Leaves) -> tuple[Leaves, None]:
        if isinstance(verb.adjoint, str):
            raise UsageError(f"{verb.name}: {verb.adjoint}")
        return run(leaves), None

    def backward(_: None, gradients: Leaves) -> tuple[Leaves]:
        assert not isinstance(verb.adjoint, str)
        # Integers have no gradient.
        places = [at for at, one in enumerate(gradients) if one.dtype != jax.dtypes.float0]
        sums = verb.adjoint([gradients[at] for at in places])
        back = list(gradients)
        for at, one in zip(places, sums, strict=True):
            back[at] = one
        return (back,)

    differentiable: Any = jax.custom_vjp(run)
    differentiable.defvjp(forward, backward)
    results: Leaves = differentiable(leaves)
    return results
