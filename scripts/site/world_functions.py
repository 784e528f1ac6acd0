"""A griffe extension: `f = on_world(C.f)` has the parameters of the method, and examples are code."""

import re
from copy import copy
from typing import Any

import griffe


class WorldFunctions(griffe.Extension):
    """Replaces attributes whose value is a call of `on_world` by functions."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Renames the section `Example`, which griffe does not read as code."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"(?m)^( *)Example:$", r"\1Examples:", obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Looks through the members of a module that was read."""
        for name, member in list(mod.members.items()):
            if member.is_alias or not member.is_attribute or not str(member.value).startswith("on_world("):
                continue
            owner, _, method_name = str(member.value).removeprefix("on_world(").rstrip(")").partition(".")
            method = mod.members[owner].members[method_name]
            function = griffe.Function(
                name,
                parameters=griffe.Parameters(*[copy(one) for one in method.parameters if one.name != "self"]),
                returns=method.returns,
                lineno=method.lineno,
                endlineno=method.endlineno,
                docstring=method.docstring,
                parent=mod,
            )
            mod.set_member(name, function)
