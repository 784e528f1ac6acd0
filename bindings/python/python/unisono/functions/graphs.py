"""Functions built from PyTensor graphs: interprets the arguments of `function` for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unisono.functions import outputs as output_modes
from unisono.functions.evaluator import Definition
from unisono.functions.function_object import Function, Input
from unisono.functions.pool import Pool
from unisono.functions.with_pytensor import Graph, is_shared


def make(
    pool: Pool,
    inputs: list[Any],
    outputs: Any,
    broadcast: list[Any],
    updates: Any,
    givens: Any,
    sliceables: list[Any],
    weighted: bool,
    name: str | None,
    options: dict[str, Any],
) -> Function:
    """Builds a function from a graph; see `unisono.functions.function_object`."""
    variables, modes, is_single = output_modes.parse(outputs)
    for position, (variable, mode) in enumerate(zip(variables, modes, strict=True)):
        if mode == "avg":
            output_modes.check_average(variable.dtype, position)
    changes = _updates(updates)
    replaced = list(givens.items()) if isinstance(givens, Mapping) else [tuple(pair) for pair in givens or []]
    graph = Graph(
        [*inputs, *broadcast],
        variables,
        [(variable, expression) for variable, expression, _ in changes],
        replaced,
        options if name is None else {**options, "name": name},
    )
    shareds = graph.shareds()
    for position, one in enumerate(sliceables):
        if not any(one is used for used in shareds):
            raise ValueError(
                f"sliceable_shareds: expected variables that the function uses, received {one} at position "
                f"{position}"
            )
    definition = Definition(
        name or "function",
        graph,
        modes,
        [(variable, mode) for variable, _, mode in changes],
        list(sliceables),
        len(inputs),
        weighted,
    )
    described = [Input(one.name, one, one.dtype, one.ndim) for one in [*inputs, *broadcast]]
    return Function(pool, definition, described, is_single, shareds)


def _updates(updates: Any) -> list[tuple[Any, Any, str]]:
    """The variable, expression and mode of each update."""
    listed = list(updates.items()) if isinstance(updates, Mapping) else list(updates or [])
    found = []
    for position, one in enumerate(listed):
        if not isinstance(one, tuple) or len(one) not in (2, 3):
            raise TypeError(
                f"update {position}: expected (variable, expression) or (variable, expression, mode), "
                f"received {one!r}"
            )
        variable, expression, mode = one if len(one) == 3 else (*one, "avg")
        if not is_shared(variable):
            raise TypeError(f"update {position}: expected a shared variable first, received {variable}")
        found.append((variable, expression, output_modes.check_mode(mode, position, "update") or "avg"))
    return found
