"""Where code finds what it uses besides its arguments: workers find there what the master has."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any, NamedTuple

from unisono.functions.spaces import Gone


class Name(NamedTuple):
    """A name of a module that some code reads."""

    space: dict[str, Any]
    name: str

    def value(self) -> Any:
        """What it stands for."""
        return self.space.get(self.name, Gone)


class Cell(NamedTuple):
    """A variable of an enclosing function."""

    function: FunctionType
    at: int
    name: str

    def value(self) -> Any:
        """What it holds."""
        assert self.function.__closure__ is not None
        return content(self.function.__closure__[self.at])


class Part(NamedTuple):
    """A shared variable that lies in a class, or in the defaults of a function."""

    owner: Any
    name: str

    def value(self) -> Any:
        """What lies there."""
        return vars(self.owner).get(self.name, Gone) if isinstance(self.owner, type) else self._default()

    def _default(self) -> Any:
        return getattr(self.owner, self.name)


class Field(NamedTuple):
    """An attribute of an object or a class of the user's."""

    owner: Any
    name: str
    is_slot: bool = False
    """Whether its class keeps a place for it, instead of a dictionary."""

    def value(self) -> Any:
        """What it is."""
        if not self.is_slot:
            return vars(self.owner).get(self.name, Gone)
        try:
            return object.__getattribute__(self.owner, self.name)
        except AttributeError:
            return Gone


Place = Name | Cell | Part | Field


def content(cell: CellType) -> Any:
    """What a variable of an enclosing function holds."""
    try:
        return cell.cell_contents
    except ValueError:
        return Gone
