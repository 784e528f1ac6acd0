"""What code has words for: the names that it reads and writes, attributes, modules that it imports."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import NamedTuple


class Words(NamedTuple):
    """What code has words for."""

    reads: tuple[str, ...]
    writes: frozenset[str]
    attributes: tuple[str, ...]
    imports: tuple[str, ...]
    rebinds: frozenset[str]
    """Variables of enclosing functions that it assigns."""
    assigns: frozenset[str]
    """Attributes that it assigns."""


@functools.lru_cache(maxsize=4096)
def read(code: CodeType) -> Words:
    """All words of some code, and of the functions within it."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in Words._fields}
    stack = [code]
    while stack:
        one = stack.pop()
        stack += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
        for step in dis.get_instructions(one):
            kind = _STEPS.get(step.opname)
            if kind is not None:
                found[kind][step.argval] = None
    return Words(
        tuple(found["reads"]),
        frozenset(found["writes"]),
        tuple(found["attributes"]),
        tuple(found["imports"]),
        frozenset(found["rebinds"]) & frozenset(code.co_freevars),
        frozenset(found["assigns"]),
    )


_STEPS = {
    "LOAD_GLOBAL": "reads",
    "LOAD_NAME": "reads",
    "STORE_GLOBAL": "writes",
    "DELETE_GLOBAL": "writes",
    "LOAD_ATTR": "attributes",
    "LOAD_METHOD": "attributes",
    "IMPORT_FROM": "attributes",
    "IMPORT_NAME": "imports",
    "STORE_DEREF": "rebinds",
    "STORE_ATTR": "assigns",
}
