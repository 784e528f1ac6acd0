"""What objects and classes of the user have: which attributes hold data, and which class has a method."""

from __future__ import annotations

import argparse
import enum
from types import MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any

from unisono.functions.spaces import is_own

PLAIN_OBJECTS = (argparse.Namespace, SimpleNamespace)
"""Objects of libraries that have nothing but what the user gives them."""

_MODULES = "torch.nn.modules.module"


def data_of(kind: type) -> list[str]:
    """The attributes of a class that are neither methods nor the machinery of classes."""
    if issubclass(kind, enum.Enum):
        return []
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and not hasattr(type(value), "__get__")
    ]


def slots_of(kind: type) -> list[str]:
    """The attributes for which classes of the user keep a place."""
    own = [one for one in kind.__mro__ if is_own(one.__module__)]
    return [
        name for one in own for name, value in vars(one).items() if isinstance(value, MemberDescriptorType)
    ]


def is_copied(thing: Any) -> bool:
    """Whether workers get all attributes of an object: its class does not say itself what is sent."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    kinds = [one for one in type(thing).__mro__ if one is not object]
    speakers = [one for one in kinds if any(name in vars(one) for name in names)]
    # PyTorch's modules send all but what they have compiled.
    return isinstance(thing, PLAIN_OBJECTS) or all(one.__module__ == _MODULES for one in speakers)


def definer(method: MethodType) -> type:
    """The class that has a method."""
    owner = method.__self__
    kind = owner if isinstance(owner, type) else type(owner)
    for one in kind.__mro__:
        held = vars(one).get(method.__name__)
        if getattr(held, "__func__", held) is method.__func__:
            return one
    return kind
