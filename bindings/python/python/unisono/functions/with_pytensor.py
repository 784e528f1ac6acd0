"""PyTensor: graphs as functions, and shared variables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs

from unisono.functions.shared_array import parts, titled_parts

__all__ = ["Compiled", "Graph", "parts", "titled_parts"]


@dataclass
class Graph:
    """The computation of a function, sent to every worker and compiled there."""

    inputs: list[Any]
    outputs: list[Any]
    updates: list[tuple[Any, Any]]
    givens: list[tuple[Any, Any]]
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Compiled:
        """Compiles the graph."""
        return Compiled(self)

    def shareds(self) -> list[Any]:
        """The shared variables that the graph uses or changes, in traversal order."""
        roots = [*self.outputs]
        for old, new in [*self.updates, *self.givens]:
            roots += [old, new]
        found = (one for one in graph_inputs(roots) if isinstance(one, SharedVariable))
        replaced = {id(old) for old, _ in self.givens}
        unique = {id(one): one for one in found if id(one) not in replaced}
        return list(unique.values())


class Compiled:
    """A graph, ready to run in this process."""

    is_fresh = True
    """Whether the caller owns the outputs exclusively and need not copy them."""

    def __init__(self, graph: Graph) -> None:
        self.function: Any = pytensor.function(
            graph.inputs,
            graph.outputs,
            updates=graph.updates,
            givens=graph.givens,
            **graph.options,
        )

    def run(self, arguments: list[Any]) -> list[Any]:
        """Computes the outputs and applies the updates."""
        return list(self.function(*arguments))


class _Copy:
    """A shared variable's value in this process."""

    def __init__(self, shared: Any) -> None:
        self._storage = shared.container.storage
        self._shared = shared
        self.name = shared.name or "an unnamed shared variable"

    def get(self) -> Any:
        return self._storage[0]

    def set(self, array: Any) -> None:
        held = self._storage[0]
        if isinstance(held, np.ndarray) and held.shape == array.shape and held.flags.writeable:
            held[...] = array
        else:
            self._shared.set_value(np.array(array, dtype=self._shared.dtype), borrow=True)

    def raw(self) -> Any:
        return self._storage[0]

    def put(self, value: Any) -> None:
        self._storage[0] = value


def is_shared(thing: Any) -> bool:
    """Whether this is a shared variable of PyTensor."""
    return isinstance(thing, SharedVariable)


is_found = is_shared
"""Shared variables are shared even without a declaration."""


def wrap(thing: Any) -> _Copy:
    """Wraps a shared variable of PyTensor as a variable."""
    return _Copy(thing)
