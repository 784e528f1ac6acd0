"""Creates functions from graphs and from callables."""

from __future__ import annotations

from typing import Any

from unisono.functions import callables
from unisono.functions import outputs as output_modes
from unisono.functions.evaluator import Definition
from unisono.functions.function_object import Function, Input
from unisono.functions.pool import Pool, active
from unisono.functions.shared_array import Shared
from unisono.functions.variables import parts_of


def function(
    inputs: Any,
    outputs: Any = None,
    bcast_inputs: Any = None,
    updates: Any = None,
    givens: Any = None,
    sliceable_shareds: Any = None,
    *,
    shareds: Any = None,
    framework: str | None = None,
    weighted: bool = False,
    name: str | None = None,
    **options: Any,
) -> Function:
    """Creates a function that runs on all workers: each gets its part of the inputs.

    It takes a PyTensor graph, as lists of symbolic inputs and outputs, or a callable over NumPy arrays,
    PyTorch tensors or JAX arrays. The inputs of a callable are its parameters, in order, except optional
    ones; its shared arrays are passed by name.

    Args:
        inputs: The symbolic inputs that are scattered along their first axis, or a callable.
        outputs: For graphs None, a variable, a pair (variable, mode), or a list of those. For callables the
            mode of the output, or a list of modes. Modes are "avg", "sum", "prod", "min", "max", "gather",
            and None for the master's own value.
        bcast_inputs: The symbolic inputs that every worker gets in full; for callables their names, including
            those of optional parameters that are inputs.
        updates: Changes of shared variables: for graphs (variable, expression) or (variable, expression,
            mode), for callables variables or (variable, mode). Each worker changes its own copy; the mode
            determines how the changes of slices are combined.
        givens: Replacements in the graph.
        sliceable_shareds: Shared variables that hold data: calls select rows of them with `shared_batch`.
        shareds: For callables: the shared arrays passed by name, and the modules and parameters that it uses.
        framework: For callables: "numpy", "torch" or "jax"; by default inferred from its type and shareds.
        weighted: Whether averages weight each worker and slice by its row count, to give means over all rows.
        name: The name of the function.
        **options: For graphs: passed to `pytensor.function`.

    Returns:
        The function.

    Example:
        >>> import numpy as np
        >>> from unisono import functions
        >>> functions.start(2)
        2
        >>> f = functions.function(lambda x, y: (x @ y).mean(axis=0), "avg", bcast_inputs=["y"])
        >>> x, y = f.build_inputs(np.ones((4, 3)), np.ones((3, 2)))
        >>> f(x, y)
        array([3., 3.])
        >>> functions.close()
    """
    pool = active("function()")
    if bcast_inputs is not None and not isinstance(bcast_inputs, list):
        raise TypeError(
            f"function: expected bcast_inputs to be a list, received {type(bcast_inputs).__name__}"
        )
    if isinstance(inputs, list):
        if shareds is not None or framework is not None:
            raise TypeError(
                "function: shareds and framework are for callables; a graph has its variables in it"
            )
        from unisono.functions import graphs

        return graphs.make(
            pool,
            inputs,
            outputs,
            bcast_inputs or [],
            updates,
            givens,
            sliceable_shareds or [],
            weighted,
            name,
            options,
        )
    if not callable(inputs):
        raise TypeError(
            f"function: expected inputs to be a list, or a callable, received {type(inputs).__name__}"
        )
    if givens is not None or options:
        unknown = "givens" if givens is not None else next(iter(options))
        raise TypeError(f"function: a callable takes no {unknown}; bind such values in the callable")
    return _of_callable(
        pool,
        inputs,
        outputs,
        bcast_inputs or [],
        updates,
        sliceable_shareds or [],
        shareds,
        framework,
        weighted,
        name,
    )


def _of_callable(
    pool: Pool,
    target: Any,
    modes: Any,
    broadcast: list[str],
    updates: Any,
    sliceables: list[Any],
    shareds: Any,
    framework: str | None,
    weighted: bool,
    name: str | None,
) -> Function:
    declared = [
        *(shareds if isinstance(shareds, (list, tuple)) else [shareds] if shareds is not None else [])
    ]
    pairs = [one if isinstance(one, tuple) else (one, "avg") for one in updates or []]
    for position, one in enumerate(pairs):
        if len(one) != 2:
            raise TypeError(
                f"update {position}: expected a variable or a pair (variable, mode), received {one!r}"
            )
        output_modes.check_mode(one[1], position, "update")
    updated = [pair[0] for pair in pairs]
    every = list({id(one): one for one in [*declared, *sliceables, *updated]}.values())
    for one in every:
        parts_of(one)
    arrays = [one for one in every if isinstance(one, Shared)]
    for argument, given in (("sliceable_shareds", sliceables), ("shareds", declared), ("updates", updated)):
        callables.check_names(target, argument, given)
    titles = [one.name for one in arrays]
    twice = [one for one in titles if titles.count(one) > 1]
    if twice:
        raise ValueError(f"shareds: expected one shared array for each name, received two named {twice[0]!r}")
    parsed, is_single = output_modes.parse_modes(modes)
    names = callables.input_names(target, titles, broadcast)
    wrong = [one for one in broadcast if one not in names]
    if wrong:
        raise ValueError(f"bcast_inputs: expected names out of {names}, received {wrong[0]!r}")
    scattered = [one for one in names if one not in broadcast]
    kind = framework or callables.framework_of(target, every)
    if kind not in callables.FRAMEWORKS:
        raise ValueError(f"framework: expected one of {', '.join(callables.FRAMEWORKS)}, received {kind!r}")
    positional = callables.positional_names(target, names, titles)
    body = callables.Callable(target, kind, arrays, len(parsed), [*scattered, *broadcast], names, positional)
    title = name or getattr(target, "__name__", None) or type(target).__name__
    definition = Definition(title, body, parsed, pairs, list(sliceables), len(scattered), weighted)
    inputs = [Input(one) for one in [*scattered, *broadcast]]
    return Function(pool, definition, inputs, is_single, every)
