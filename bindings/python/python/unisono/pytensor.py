"""PyTensor, or Theano if that is installed: shared variables synchronized between workers.

Example:
    >>> import numpy as np
    >>> import unisono as uni
    >>> from unisono.pytensor import mv_shared
    >>> world = uni.init()
    >>> W = mv_shared(value=np.zeros((3, 2), "float32"), name="W", borrow=True)
    >>> W.set_value(W.get_value() + 1)
    >>> W.mv_sync()  # adds what changed here, takes what all have added
    >>> float(W.get_value()[0, 0])
    1.0
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono.default_world import joined, world
from unisono.errors import UsageError
from unisono.tables import ArrayTable


def _framework() -> Any:
    """The framework that the program has imported, else the one that is installed."""
    names = ("pytensor", "theano")
    for name in names:
        if name in sys.modules:
            return sys.modules[name]
    for name in names:
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    raise ImportError(
        "unisono.pytensor needs PyTensor or Theano, and neither is installed; pip install pytensor"
    )


framework = _framework()
"""PyTensor or Theano."""

Values = np.ndarray[Any, Any]

# Types of tables; variables of other types are not supported.
_FLOATS = ("float32", "float64", "float16")


def mv_shared(*args: Any, consistency: str = "async", **options: Any) -> Any:
    """Makes a shared variable synchronized between workers. Every worker makes the same ones, in order.

    Args:
        args: Arguments of ``pytensor.shared``: `value`, `name`, `borrow` and so on. Worker 0's value is used.
        consistency: How far workers may drift apart: "async", "bsp" and so on; see the guide to tables.
        options: Keyword arguments of ``pytensor.shared``.

    Returns:
        The shared variable itself, for graphs, updates and givens, with an additional method `mv_sync`.
    """
    variable = framework.shared(*args, **options)
    return keep(SyncedVariable(variable, consistency=consistency), mv_shared)


mv_shared.shared_vars = []  # type: ignore[attr-defined]


def sync_all_mv_shared_vars() -> None:
    """Calls `mv_sync` on every variable that `mv_shared` has made, in the order in which they were made."""
    for variable in mv_shared.shared_vars:  # type: ignore[attr-defined]
        variable.mv_sync()


class SyncedVariable:
    """A shared variable and the table to which all workers add their changes.

    Other attributes are delegated to the variable. Pickling omits the table: a copy has the values and cannot
    be synced.
    """

    _own = frozenset({"_svobj", "_mv_array", "_last_mv_data", "_made_in"})

    def __init__(self, svobj: Any, **options: Any) -> None:
        """Makes the table with worker 0's value, which all variables then have.

        Args:
            svobj: A shared variable of PyTensor or Theano.
            options: Options of the table.
        """
        self._svobj = svobj
        self._last_mv_data: Values
        value = np.asarray(svobj.get_value(borrow=True))
        self._made_in: Any = joined()
        self._mv_array = self._make_table(value, **options)
        self._barrier()
        self._take()

    def mv_sync(self) -> None:
        """Adds this worker's changes since the last sync, and gets the resulting values.

        Raises:
            UsageError: It is a copy, the world has ended, or the variable has changed shape.
        """
        if self._mv_array is None:
            raise UsageError(
                f"mv_sync: expected a variable that mv_shared made, received a copy of {self._name()}; "
                "sync the one that was copied"
            )
        if self._is_over():
            raise UsageError(
                f"mv_sync: expected a call before shutdown(), received one on {self._name()} after it; "
                "make a new variable"
            )
        current = np.array(self._svobj.get_value(borrow=True))
        if current.shape != self._last_mv_data.shape:
            raise UsageError(
                f"mv_sync: expected {self._name()} of shape {self._last_mv_data.shape}, as it was made, "
                f"received {current.shape}; keep the shape"
            )
        self._mv_array.add((current - self._last_mv_data).ravel())
        # The change is in the table: if the rest fails, it must not be added again.
        self._last_mv_data = current
        self._take()

    def _take(self) -> None:
        value = np.asarray(self._svobj.get_value(borrow=True))
        fresh = self._mv_array.get().reshape(value.shape)
        self._svobj.set_value(fresh.astype(value.dtype), borrow=True)
        self._last_mv_data = fresh

    def _make_table(self, value: Values, **options: Any) -> Any:
        if value.dtype.name not in _FLOATS:
            raise UsageError(
                f"mv_shared: expected a value of type {', '.join(_FLOATS)}, received {self._name()} of type "
                f"{value.dtype}; convert it"
            )
        return ArrayTable(value.size, value.dtype, init=value.ravel(), **options)

    def _barrier(self) -> None:
        world().barrier()

    def _is_over(self) -> bool:
        """Whether the world in which the variable was made has ended."""
        return joined() is not self._made_in

    def _name(self) -> str:
        return repr(getattr(self._svobj, "name", None) or "a shared variable")

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._own:
            raise AttributeError(name)  # during unpickling
        return getattr(self._svobj, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._own:
            object.__setattr__(self, name, value)
        else:
            setattr(self._svobj, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mv_array": None, "_made_in": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def keep(variable: SyncedVariable, maker: Any) -> Any:
    """Adds a variable to its maker's list, and removes those of worlds that have ended.

    Args:
        variable: The variable with its table.
        maker: The function whose attribute `shared_vars` is the list.

    Returns:
        The plain shared variable, with the method `mv_sync`.
    """
    maker.shared_vars[:] = [one for one in maker.shared_vars if not one._is_over()]
    maker.shared_vars.append(variable)
    variable._svobj.mv_sync = variable.mv_sync
    return variable._svobj


class SharedVariables:
    """Shared variables as the parameters of a manager."""

    in_place = False

    def __init__(self, variables: Mapping[str, Any]) -> None:
        for name, variable in variables.items():
            if not (hasattr(variable, "get_value") and hasattr(variable, "set_value")):
                raise UsageError(
                    f"parameters: expected shared variables, received {name!r}, which is a "
                    f"{type(variable).__name__}; pass what pytensor.shared() returned"
                )
        self._variables = dict(variables)

    def names(self) -> list[str]:
        """The variables' names, each with its index, because names may repeat."""
        return list(self._variables)

    def read(self) -> list[Values]:
        """The current values."""
        return [np.asarray(variable.get_value(borrow=True)) for variable in self._variables.values()]

    def write(self, values: list[Values]) -> None:
        """Replaces the values by copies in the variables' own types."""
        types = [value.dtype for value in self.read()]
        copies = [value.astype(dtype) for value, dtype in zip(values, types, strict=True)]
        for variable, copy in zip(self._variables.values(), copies, strict=True):
            variable.set_value(copy, borrow=True)


def parameters_of(model: Any) -> SharedVariables:
    """Shared variables as parameters, for `unisono.ParameterManager`.

    Args:
        model: A shared variable, a list of them, or a dictionary with their names.

    Returns:
        Its parameters.
    """
    if isinstance(model, Mapping):
        return SharedVariables({str(name): variable for name, variable in model.items()})
    variables = list(model) if isinstance(model, (list, tuple)) else [model]
    return SharedVariables(
        {f"{place}:{getattr(one, 'name', None) or ''}": one for place, one in enumerate(variables)}
    )
