"""The non-tensor arguments of a call: what ranks compare, and what a dry run depends on."""

from __future__ import annotations

import enum
import types
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from unisono.torch.space.dispatch import is_record
from unisono.torch.space.lru_cache import LruCache

KINDS = 64
"""The number of kinds of calls to remember; beyond it, the least recently used one is evicted."""

VALUES = 8
"""The number of option values to try for a kind of call; a diffusion model passes more time steps."""

_CONSTANTS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(...),
    slice,
    enum.Enum,
    np.generic,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)


@dataclass
class Description:
    """Arguments as text that is equal on ranks that pass equal arguments."""

    kinds: list[str] = field(default_factory=list)
    """Structure and types."""
    values: list[str] = field(default_factory=list)
    """The values of constants, on which the control flow of a module may depend."""
    data: list[str] = field(default_factory=list)
    """Checksums of arrays, and of generators' states."""


def describe(value: Any, found: Description | None = None) -> Description:
    """Describes arguments. An object without a comparable value is described by its type.

    Args:
        value: Arguments without their tensors.
        found: The description to extend.

    Returns:
        The description.
    """
    found = Description() if found is None else found
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, Mapping):
        found.kinds.append(f"{name} of {len(value)}")
        for key, one in value.items():
            describe(key, found)
            describe(one, found)
    elif is_record(value):
        describe(vars(value), found)
        found.kinds.append(name)
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        found.kinds.append(f"{name} of {len(value)}")
        for one in value:
            describe(one, found)
    elif isinstance(value, (set, frozenset)):
        found.kinds.append(name)
        found.values += sorted(" ".join(describe(one).values) for one in value)
    elif isinstance(value, np.ndarray):
        found.kinds.append(f"{name} {value.dtype} {value.shape}")
        if not value.dtype.hasobject:
            found.data.append(str(zlib.crc32(np.ascontiguousarray(value).tobytes())))
    elif isinstance(value, torch.Generator):
        found.kinds.append(f"{name} {value.device.type}")
        found.data.append(str(zlib.crc32(value.get_state().numpy().tobytes())))
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        found.kinds.append(f"{name} {value.__module__}.{value.__qualname__}")
    else:
        found.kinds.append(name)
        text = repr(value) if _is_constant(value) else ""
        # The default repr contains an address, which differs between processes.
        if " at 0x" not in text:
            found.values.append(text)
    return found


def _is_constant(value: Any) -> bool:
    """Whether `repr` shows the value, as for types that define both equality and `repr`."""
    kind: Any = type(value)
    own = kind.__eq__ is not object.__eq__ and kind.__repr__ is not object.__repr__
    return isinstance(value, _CONSTANTS) or (own and not isinstance(value, torch.nn.Module))


class KnownCalls:
    """The calls that a dry run has tried: the same on every rank, because all ranks make the same calls."""

    def __init__(self) -> None:
        self._known: LruCache[str, set[int]] = LruCache(KINDS)

    def __contains__(self, call: tuple[str, int]) -> bool:
        kind, values = call
        known = self._known.get(kind)
        return known is not None and (values in known or len(known) >= VALUES)

    def add(self, call: tuple[str, int]) -> None:
        """Remembers a call.

        Args:
            call: The kind of call, and a checksum of its option values.
        """
        kind, values = call
        known = self._known.get(kind)
        if known is None:
            known = self._known.add(kind, set())
        if len(known) < VALUES:
            known.add(values)
