"""A copy of a module's structure on the device `meta`, for passes that must not change the module itself."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from typing import Any, cast

import torch

from unisono.torch.space.part import Part, unwrap, wrap

SMALL = 1 << 16
"""The maximum number of elements for which a tensor in an attribute keeps its values, which code may read.

Larger tensors, such as activations of an earlier pass, are copied without elements."""


def meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Copies a module without the elements of its parameters and buffers.

    Modules, parameters and containers that are shared in the module are shared in the copy, too. The copy
    follows modules, containers, bound methods, partial functions and closures, such as hooks that use
    the module. All other objects are shared with the module.

    Args:
        module: The module; it is not changed.

    Returns:
        The copy.
    """
    known = _Copies()
    for one in [*module.parameters(), *module.buffers()]:
        # Code may read scalars, such as counters.
        known.add(one, one.detach().cpu().clone() if one.dim() == 0 else one.detach().to("meta"))
    return cast(torch.nn.Module, known.of(module))


class _Copies:
    """Copies by the `id` of their originals, which are kept alive so that no other object gets that `id`."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}

    def add(self, original: Any, copy: Any) -> Any:
        self._known[id(original)] = original, copy
        return copy

    def of(self, value: Any) -> Any:
        """The copy of a value; a value that holds no tensors or modules is its own copy."""
        if id(value) in self._known:
            return self._known[id(value)][1]
        if isinstance(value, torch.nn.Module) and not isinstance(value, torch.jit.ScriptModule):
            module = self.add(value, object.__new__(type(value)))
            for name, one in vars(value).items():
                vars(module)[name] = self.of(one)
            return module
        if isinstance(value, torch.Tensor):
            return self.add(value, _tensor(value))
        kind = type(value)
        if kind in (dict, OrderedDict, defaultdict):
            table = self.add(value, kind(value.default_factory) if kind is defaultdict else kind())
            for key, one in value.items():
                table[self.of(key)] = self.of(one)
            return table
        if kind in (list, deque):
            several = self.add(value, deque(maxlen=value.maxlen) if kind is deque else [])
            several.extend(self.of(one) for one in value)
            return several
        if kind in (tuple, set, frozenset):
            return self.add(value, kind(self.of(one) for one in value))
        if kind is types.MethodType:
            return self.add(value, types.MethodType(value.__func__, self.of(value.__self__)))
        if kind is functools.partial:
            given = [self.of(one) for one in value.args]
            named = {key: self.of(one) for key, one in value.keywords.items()}
            return self.add(value, functools.partial(self.of(value.func), *given, **named))
        if kind is types.FunctionType and value.__closure__:
            return self._function(value)
        return value

    def _function(self, value: types.FunctionType) -> types.FunctionType:
        cells = value.__closure__ or ()
        new = [cell for cell in cells if id(cell) not in self._known]
        for cell in new:
            self.add(cell, types.CellType())
        copies = tuple(self.of(cell) for cell in cells)
        same = types.FunctionType(
            value.__code__, value.__globals__, value.__name__, value.__defaults__, copies
        )
        same.__kwdefaults__ = value.__kwdefaults__
        vars(same).update(vars(value))
        self.add(value, same)
        for cell in new:
            try:
                self.of(cell).cell_contents = self.of(cell.cell_contents)
            except ValueError:
                # A variable that is not bound yet.
                continue
        return same


def _tensor(x: torch.Tensor) -> torch.Tensor:
    if isinstance(x, Part):
        return wrap(unwrap(x).detach().to("meta"), x.place, x.flat)
    return x.detach().clone() if x.numel() <= SMALL else x.detach().to("meta")
