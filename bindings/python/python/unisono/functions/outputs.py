"""Output modes, and how the parts of an output are combined."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.functions.deprecation import deprecated
from unisono.functions.device import is_float, title

MODES = ("avg", "sum", "prod", "min", "max", "gather", None)
"""How the outputs of all workers are combined; None keeps the master's own."""

_FOLDS: dict[str, Any] = {
    "avg": np.add,
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}

CARRIED = frozenset(
    np.dtype(name) for name in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64")
)
"""Element types that the ranks can reduce collectively; the master alone combines all others."""


def check_mode(mode: Any, position: int, what: str = "output") -> str | None:
    """Validates a mode; a leading ``c_``, which once selected the CPU, is deprecated."""
    plain = mode[2:] if isinstance(mode, str) and mode.startswith("c_") else mode
    if plain != mode:
        deprecated(f"the mode {mode!r}", repr(plain))
    if plain not in MODES:
        known = ", ".join(repr(one) for one in MODES)
        raise ValueError(f"{what} {position}: expected a mode out of {known}, received {mode!r}")
    found: str | None = plain
    return found


def check_average(kind: str, position: int) -> None:
    """Raises an error for an average that its own type cannot represent."""
    if not is_float(kind):
        raise TypeError(
            f"Cannot average integer dtype: output {position} expected floating point for mode 'avg', "
            "received "
            f"{title(kind)}; use 'sum', or cast the output"
        )


def without_axis(position: int) -> str:
    """The error message for a scalar in mode "gather"."""
    return (
        f"output {position} has no axis to gather along; expected at least one: return an array of one "
        "element, or use another mode"
    )


def check_type(dtype: Any, what: str) -> None:
    """Raises an error for elements that are not plain numbers: shared memory holds nothing else."""
    if np.dtype(dtype).kind not in "biufc":
        raise TypeError(
            f"{what}: expected numbers of a type that NumPy has, received {np.dtype(dtype)}; "
            "convert them, for example to float32"
        )


def parse(outputs: Any) -> tuple[list[Any], list[str | None], bool]:
    """Parses symbolic outputs.

    Args:
        outputs: None, a variable, a pair of variable and mode, or a list of those.

    Returns:
        The variables, their modes, and whether the caller passed a single output.
    """
    if outputs is None:
        return [], [], False
    is_single = not isinstance(outputs, list)
    variables, modes = [], []
    for position, one in enumerate([outputs] if is_single else outputs):
        if isinstance(one, tuple):
            if len(one) != 2:
                raise TypeError(
                    f"output {position}: expected a pair (variable, mode), received a tuple of {len(one)}"
                )
            variable, mode = one
        else:
            variable, mode = one, "avg"
        variables.append(variable)
        modes.append(check_mode(mode, position))
    return variables, modes, is_single


def parse_modes(outputs: Any) -> tuple[list[str | None], bool]:
    """Parses the modes of a callable's outputs: None for no output, a mode, or a list of modes."""
    if outputs is None:
        return [], False
    if isinstance(outputs, (list, tuple)):
        return [check_mode(one, position) for position, one in enumerate(outputs)], False
    return [check_mode(outputs, 0)], True


def fold(mode: str, arrays: Sequence[Any]) -> Any:
    """Combines arrays in order into a new array of the same type."""
    total = functools.reduce(_FOLDS[mode], arrays) if len(arrays) > 1 else np.array(arrays[0])
    if mode == "avg":
        total = total * (1.0 / len(arrays))
    return np.asarray(total, dtype=arrays[0].dtype)


def weigh(value: Any, rank: int, weights: Sequence[int]) -> Any:
    """A rank's contribution to a weighted average; zero without weight, whatever the rank computed."""
    own = weights[rank]
    return np.asarray(value * value.dtype.type(own / sum(weights))) if own else np.zeros_like(value)


def together(mode: str, arrays: Sequence[Any], weights: Sequence[int] | None) -> Any:
    """Combines the parts of all ranks; averages use the weights, or equal weights if there are none."""
    if mode == "gather":
        return np.concatenate(arrays)
    if weights is None:
        return fold(mode, arrays)
    return fold("sum", [weigh(one, rank, weights) for rank, one in enumerate(arrays)])


class Accumulator:
    """Combines the outputs of one worker's slices.

    Args:
        mode: The output's mode.
        weighted: Whether averages weight each slice by its row count.
        is_fresh: Whether values are exclusively owned; others are copied, as the next slice may change them.
    """

    def __init__(self, mode: str | None, weighted: bool, is_fresh: bool = False) -> None:
        self._mode, self._weighted, self._is_fresh = mode, weighted and mode == "avg", is_fresh
        self._parts: list[Any] = []
        self._total: Any = None
        self._type: Any = None
        self._weight = 0

    def add(self, value: Any, rows: int) -> None:
        """Adds the value of the next slice."""
        if self._mode == "gather":
            self._parts.append(self._own(value))
            return
        self._type = value.dtype
        if self._mode == "avg" and value.dtype == np.float16:
            # A float16 sum could overflow even if the average does not.
            value = np.asarray(value, np.float32)
        if self._weighted:
            value = value * value.dtype.type(rows)
        is_first = self._mode is None or self._total is None
        self._total = self._own(value) if is_first else _FOLDS[str(self._mode)](self._total, value)
        self._weight += rows if self._weighted else 1

    def _own(self, value: Any) -> Any:
        return value if self._is_fresh else np.array(value)

    def result(self) -> Any:
        """The combined value of all slices."""
        if self._mode == "gather":
            return np.concatenate(self._parts)
        total = np.asarray(self._total)
        if self._mode == "avg" and self._weight > 0:
            return np.asarray(total * total.dtype.type(1.0 / self._weight), dtype=self._type)
        return total
