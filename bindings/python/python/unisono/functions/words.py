"""Names that code uses: those that it reads and writes, attributes, and modules that it imports."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import NamedTuple

_MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "move_to_end"),
    *("pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "update"),
    *("__setitem__", "__delitem__"),
}
"""Methods that change a container."""

_MUTATING = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE", "INPLACE_")
_IN_PLACE = ("+=", "*=", "|=", "&=", "-=", "^=")

_REFLECTIVE = frozenset(("setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"))
"""Names used by code that may assign attributes without naming them."""


class Words(NamedTuple):
    """The names that code uses."""

    reads: tuple[str, ...]
    writes: frozenset[str]
    attributes: tuple[str, ...]
    """Attributes that it reads, and those that it may read by `getattr`: its identifier-like strings."""
    imports: tuple[str, ...]
    rebinds: frozenset[str]
    """Closure variables that it assigns."""
    stores: frozenset[str]
    """Attributes that it assigns or deletes."""
    stores_any: bool
    """Whether it may assign attributes whose names are not in the code."""
    mutates: bool
    """Whether it may change the contents of lists, dictionaries or sets."""


@functools.lru_cache(maxsize=4096)
def read(code: CodeType) -> Words:
    """Collects the names in a code object and in the functions nested in it."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in (*Words._fields, "texts")}
    mutates = False
    stack = [code]
    while stack:
        one = stack.pop()
        for constant in one.co_consts:
            if isinstance(constant, CodeType):
                stack.append(constant)
            elif isinstance(constant, str) and constant.isidentifier():
                found["texts"][constant] = None
        for instruction in dis.get_instructions(one):
            kind = _OPCODES.get(instruction.opname)
            if kind is not None:
                found[kind][instruction.argval] = None
            mutates = mutates or instruction.opname.startswith(_MUTATING) or instruction.argrepr in _IN_PLACE
    words = found["reads"].keys() | found["attributes"].keys()
    by_text = found["texts"] if "getattr" in words else {}
    return Words(
        tuple(found["reads"]),
        frozenset(found["writes"]),
        (*found["attributes"], *by_text),
        tuple(found["imports"]),
        frozenset(found["rebinds"]) & frozenset(code.co_freevars),
        frozenset(found["stores"]),
        bool(words & _REFLECTIVE),
        mutates or bool(words & _MUTATORS),
    )


_OPCODES = {
    "LOAD_GLOBAL": "reads",
    "LOAD_NAME": "reads",
    "STORE_GLOBAL": "writes",
    "DELETE_GLOBAL": "writes",
    "LOAD_ATTR": "attributes",
    "LOAD_METHOD": "attributes",
    "LOAD_SUPER_ATTR": "attributes",
    "IMPORT_FROM": "attributes",
    "IMPORT_NAME": "imports",
    "STORE_DEREF": "rebinds",
    "DELETE_DEREF": "rebinds",
    "STORE_ATTR": "stores",
    "DELETE_ATTR": "stores",
}
