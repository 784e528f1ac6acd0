"""The parts of a function that is sent by value, and how a worker puts them together."""

from __future__ import annotations

import builtins
from types import CellType, FunctionType
from typing import Any

from unisono.functions.snapshot import content
from unisono.functions.user_code import Undefined, global_names, is_user_namespace

_ATTRIBUTES = ("__defaults__", "__kwdefaults__", "__annotations__", "__module__", "__qualname__", "__doc__")

State = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""The globals that a function uses, its own parts, and its attributes."""


def state_of(function: FunctionType) -> State:
    """Everything but the code and the closure variables."""
    namespace = function.__globals__
    used, absent = global_names(function) if is_user_namespace(namespace) else ((), ())
    names = {**{name: namespace[name] for name in used}, **dict.fromkeys(absent, Undefined)}
    return names, {name: getattr(function, name, None) for name in _ATTRIBUTES}, dict(vars(function))


def make(code: Any, namespace: dict[str, Any], name: str, closure: Any) -> FunctionType:
    """Makes a function without its state."""
    namespace.setdefault("__builtins__", builtins)
    return FunctionType(code, namespace, name, None, closure)


def apply_state(function: FunctionType, state: State) -> None:
    """Gives a function its state, and its namespace the globals that it uses."""
    names, parts, attributes = state
    assign(function.__globals__, names)
    for name, value in parts.items():
        setattr(function, name, value)
    vars(function).clear()
    vars(function).update(attributes)


def reduced(function: FunctionType) -> tuple[Any, ...]:
    """How pickle writes a function."""
    parts = (function.__code__, function.__globals__, function.__name__, function.__closure__)
    return make, parts, state_of(function), None, None, apply_state


def reduced_cell(cell: CellType) -> tuple[Any, ...]:
    """How pickle writes a closure variable: functions that share one share it on the worker too."""
    return CellType, (), (content(cell),), None, None, set_cell


def set_cell(cell: CellType, contents: tuple[Any]) -> None:
    """Assigns a closure variable."""
    if contents[0] is not Undefined:
        cell.cell_contents = contents[0]


def assign(namespace: dict[str, Any], names: dict[str, Any]) -> None:
    """Assigns values to names, and deletes those that have none."""
    for name, value in names.items():
        if value is Undefined:
            namespace.pop(name, None)
        else:
            namespace[name] = value
