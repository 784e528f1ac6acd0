"""What code has words for: the names that it reads and writes, attributes, modules that it imports."""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import Any, NamedTuple


class Words(NamedTuple):
    """What code has words for."""

    reads: tuple[str, ...]
    writes: frozenset[str]
    attributes: tuple[str, ...]
    imports: tuple[str, ...]
    rebinds: frozenset[str]
    """Variables of enclosing functions that it assigns."""
    assigns: frozenset[str]
    """Attributes that it assigns, of anything but its first parameter."""
    keeps: frozenset[str]
    """Attributes of its first parameter that it assigns: in a method, of its object."""


@functools.lru_cache(maxsize=4096)
def read(code: CodeType) -> Words:
    """All words of some code, and of the functions within it."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in Words._fields}
    first = code.co_varnames[0] if code.co_argcount else None
    stack = [code]
    while stack:
        one = stack.pop()
        stack += [constant for constant in one.co_consts if isinstance(constant, CodeType)]
        steps = [step for step in dis.get_instructions(one) if step.opname != "EXTENDED_ARG"]
        for at, step in enumerate(steps):
            kind = _STEPS.get(step.opname)
            if kind == "assigns" and first is not None and _target(steps, at) == first:
                kind = "keeps"
            if kind is not None:
                found[kind][step.argval] = None
    return Words(
        tuple(found["reads"]),
        frozenset(found["writes"]),
        tuple(found["attributes"]),
        tuple(found["imports"]),
        frozenset(found["rebinds"]) & frozenset(code.co_freevars),
        frozenset(found["assigns"]),
        frozenset(found["keeps"]),
    )


def _target(steps: list[dis.Instruction], at: int) -> Any:
    """The variable whose attribute a step assigns, if it is one."""
    before = at - 1
    if steps[before].opname in ("SWAP", "ROT_TWO"):
        # An attribute that was read before, as in a += 1: its owner was put aside twice.
        reads = [
            back
            for back in range(2, before)
            if steps[back].argval == steps[at].argval and steps[back - 1].opname in ("COPY", "DUP_TOP")
        ]
        before = reads[-1] - 2 if reads else before
    step = steps[before]
    if not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
        return None
    # Some steps load two variables.
    return step.argval[-1] if isinstance(step.argval, tuple) else step.argval


_STEPS = {
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
    "STORE_ATTR": "assigns",
}
