"""The tasks that move shared variables between ranks: one class for each collective."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.functions import device, outputs
from unisono.functions.batch import Place
from unisono.functions.member import Maker, Member
from unisono.functions.variables import Variable

Kind = tuple[str, tuple[int, ...]]
"""Type and shape of a rank's copy."""


class Move:
    """Base class of all moves: the variables, and a comparison of types and shapes across ranks."""

    operation = "move"
    stays = False
    """Whether values on a device move between devices, instead of through memory that all ranks can read."""

    def __init__(self, member: Member, numbers: list[int]) -> None:
        self.member = member
        self.variables: list[Variable] = [member.variables.variable(number) for number in numbers]

    def prepare(self) -> Any:
        """Publishes nothing."""
        return None

    def problem(self, shown: list[Any]) -> Exception | None:
        """Always None."""
        return None

    def finish(self, shown: list[Any]) -> Any:
        """Does nothing."""
        return None

    def kinds(self) -> list[Kind]:
        """The types and shapes of this rank's values."""
        return [_kind(variable) for variable in self.variables]

    def lend_all(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Copies this rank's values to memory that all ranks can read."""
        shown = []
        for variable in self.variables:
            if self.stays and device.is_there(variable.raw()):
                shown.append((*_kind(variable), -1))
                continue
            array = variable.get()
            shown.append((array.dtype.str, array.shape, self.lend(variable, array)))
        return shown

    def lend(self, variable: Variable, array: Any) -> int:
        """Copies a value to memory that all ranks can read: only numbers, as others hold local pointers."""
        outputs.check_type(array.dtype, f"{self.operation}: {variable.name}")
        return self.member.lend(array)

    def read(self, lent: tuple[str, tuple[int, ...], int]) -> Any:
        """A view of a value that another rank has published."""
        dtype, shape, place = lent
        return self.member.link.view(place, dtype, shape)

    def differences(self, shown: list[Any], skip: int) -> Exception | None:
        """An error unless all ranks agree in type and shape, ignoring the first `skip` axes."""
        for at, variable in enumerate(self.variables):
            kinds = [one[at][:2] for one in shown]
            if len({(kind, shape[skip:]) for kind, shape in kinds}) > 1:
                each = ", ".join(f"{device.title(kind)} {shape}" for kind, shape in kinds)
                return ValueError(
                    f"{self.operation}: expected {variable.name} to have one type and shape on all workers, "
                    f"received {each}"
                )
        return None


class Broadcast(Move):
    """Copies the master's values to all ranks; values in shared memory are read there."""

    operation = "broadcast"

    def __init__(self, member: Member, numbers: list[int], places: list[Place | Kind]) -> None:
        super().__init__(member, numbers)
        self._places = places

    def prepare(self) -> Any:
        """Publishes the kinds of the values, if any value is on a device."""
        return self.kinds() if any(place[0] == device.PREFIX for place in self._places) else None

    def problem(self, shown: list[Any]) -> Exception | None:
        """A value on a device at one rank must have the same kind and shape on all ranks."""
        return self.differences(shown, 0) if shown[0] is not None else None

    def finish(self, shown: list[Any]) -> None:
        """Copies the values."""
        link, member = self.member.link, self.member
        for variable, place in zip(self.variables, self._places, strict=True):
            if place[0] == device.PREFIX:
                variable.put(device.broadcast(member, variable.raw()))
                continue
            if len(place) == 3:
                variable.set(link.view(*place))
                continue
            dtype, shape = place
            array = np.ascontiguousarray(variable.get()) if member.is_master else np.empty(shape, dtype)
            # Every type is sent as bytes. The root's bytes are only read.
            link.group.broadcast(_writable(array), member.master, True, link.timeout)
            if not member.is_master:
                variable.set(array)


class Scatter(Move):
    """Every rank copies its rows of values in shared memory."""

    operation = "scatter"

    def __init__(
        self,
        member: Member,
        numbers: list[int],
        places: list[Place],
        parts: list[tuple[int, int]],
        rows: Place | None,
    ) -> None:
        super().__init__(member, numbers)
        self._places, self._parts, self._rows = places, parts, rows

    def prepare(self) -> None:
        """Copies the rows."""
        link = self.member.link
        chosen: Any = slice(*self._parts[self.member.rank])
        if self._rows is not None:
            chosen = link.view(*self._rows)[chosen]
        for variable, place in zip(self.variables, self._places, strict=True):
            variable.set(link.view(*place)[chosen])


class Gather(Move):
    """The master gets the values of all ranks."""

    operation = "gather"
    stays = True

    def prepare(self) -> Any:
        """Publishes this rank's values."""
        return self.lend_all()

    def finish(self, shown: list[Any]) -> Any:
        """The master copies the values: for each variable a list over ranks."""
        return [
            self._collect(variable, [one[at] for one in shown]) for at, variable in enumerate(self.variables)
        ]

    def problem(self, shown: list[Any]) -> Exception | None:
        """A value on a device at one rank must be on a device at all ranks."""
        for at, variable in enumerate(self.variables):
            kinds = {one[at][0] for one in shown}
            if len(kinds) > 1 and any(kind.startswith(device.PREFIX) for kind in kinds):
                each = ", ".join(device.title(one[at][0]) for one in shown)
                return ValueError(f"gather: expected {variable.name} in one kind of memory, received {each}")
        return None

    def _collect(self, variable: Variable, shown: list[device.Shown]) -> Any:
        member = self.member
        if device.is_there(variable.raw()):
            return device.gathered(member, variable.raw(), [shape for _, shape, _ in shown], member.master)
        return [np.array(self.read(one)) for one in shown] if member.is_master else None


class AllGather(Move):
    """Every rank gets the values of all ranks, concatenated."""

    operation = "all_gather"

    def prepare(self) -> Any:
        """Publishes this rank's values."""
        return self.lend_all()

    stays = True

    def problem(self, shown: list[Any]) -> Exception | None:
        """Rows must have compatible shapes."""
        if any(not one[at][1] for one in shown for at in range(len(self.variables))):
            return ValueError("all_gather: expected variables with at least one axis, received one without")
        return self.differences(shown, 1)

    def finish(self, shown: list[Any]) -> None:
        """Concatenates the values."""
        for at, variable in enumerate(self.variables):
            if device.is_there(variable.raw()):
                parts = device.gathered(self.member, variable.raw(), [one[at][1] for one in shown], None)
                variable.put(device.joined(parts or [], 0))
                continue
            variable.set(np.concatenate([self.read(one[at]) for one in shown]))


class Reduce(Move):
    """The master gets the combination of the values of all ranks."""

    operation = "reduce"
    everybody = False

    def __init__(self, member: Member, numbers: list[int], op: str, in_place: bool = True) -> None:
        super().__init__(member, numbers)
        self._op, self._in_place = op, in_place

    def prepare(self) -> Any:
        """Publishes types and shapes; values of types without a collective reduction go to shared memory."""
        shown = []
        for variable in self.variables:
            if device.is_there(variable.raw()):
                shown.append((*_kind(variable), -1))
                continue
            array = variable.get()
            place = -1 if array.dtype in outputs.CARRIED else self.lend(variable, array)
            shown.append((array.dtype.str, array.shape, place))
        return shown

    def problem(self, shown: list[Any]) -> Exception | None:
        """Types and shapes must agree, and averages must exist for the type."""
        if self._op == "avg":
            for at, variable in enumerate(self.variables):
                kind = shown[0][at][0]
                if not device.is_float(kind):
                    return TypeError(
                        f"{self.operation}: expected floating point for op 'avg', received "
                        f"{device.title(kind)} in {variable.name}; leave it out, use 'max', or name "
                        "the module that has it"
                    )
        return self.differences(shown, 0)

    def finish(self, shown: list[Any]) -> Any:
        """Combines the values."""
        results = [
            self._combine(variable, [one[at] for one in shown]) for at, variable in enumerate(self.variables)
        ]
        return None if self._in_place else results

    def _combine(self, variable: Variable, shown: list[Any]) -> Any:
        link, member = self.member.link, self.member
        gets_it = self.everybody or member.is_master
        if device.is_there(variable.raw()):
            return self._combine_on_device(variable)
        if shown[0][2] >= 0:
            if gets_it:
                return self._store(variable, outputs.fold(self._op, [self.read(one) for one in shown]))
            return None
        held = variable.get()
        flat = np.ascontiguousarray(held).reshape(-1)
        if self.everybody:
            flat = flat if flat.flags.writeable else flat.copy()
            link.group.all_reduce(flat, self._op, True, link.timeout, False)
        elif member.is_master and self._in_place and flat.flags.writeable:
            link.group.reduce(flat, self._op, member.master, True, link.timeout, False)
        else:
            result = link.group.reduce_to(flat, self._op, member.master, True, link.timeout, False)
            flat = np.asarray(result) if member.is_master else flat
        if not gets_it:
            return None
        array = flat.reshape(held.shape)
        return array if np.may_share_memory(array, held) else self._store(variable, array)

    def _combine_on_device(self, variable: Variable) -> Any:
        held = variable.raw()
        if self.everybody:
            result = device.all_reduced(self.member, held, self._op)
        else:
            result = device.reduced(self.member, held, self._op)
        if result is not None and self._in_place:
            variable.put(result)
        return result

    def _store(self, variable: Variable, array: Any) -> Any:
        if self._in_place:
            variable.set(array)
        return array


class AllReduce(Reduce):
    """Every rank gets the combination of the values of all ranks."""

    operation = "all_reduce"
    everybody = True


class SetValue(Move):
    """One rank copies values from shared memory."""

    operation = "set_value"

    def __init__(
        self, member: Member, numbers: list[int], rank: int, places: list[Place], rows: slice | Place | None
    ) -> None:
        super().__init__(member, numbers)
        self._rank, self._places, self._rows = rank, places, rows

    def prepare(self) -> None:
        """Copies the values on that rank."""
        link = self.member.link
        if self._rank != self.member.rank:
            return
        chosen: Any = ... if self._rows is None else self._rows
        if isinstance(chosen, tuple):
            chosen = link.view(*chosen)
        for variable, place in zip(self.variables, self._places, strict=True):
            variable.set(link.view(*place)[chosen])


class GetValue(Move):
    """The master gets one rank's values."""

    operation = "get_value"

    def __init__(self, member: Member, numbers: list[int], rank: int) -> None:
        super().__init__(member, numbers)
        self._rank = rank

    def prepare(self) -> Any:
        """The selected rank publishes its values."""
        return self.lend_all() if self.member.rank == self._rank else None

    def finish(self, shown: list[Any]) -> Any:
        """The master copies the values."""
        return [np.array(self.read(one)) for one in shown[self._rank]] if self.member.is_master else None


class GetShapes(Move):
    """The master gets the shapes of all ranks."""

    operation = "get_shapes"

    def prepare(self) -> Any:
        """Publishes the types and shapes of this rank's values."""
        return self.kinds()

    def finish(self, shown: list[Any]) -> Any:
        """The shapes: for each variable a list over ranks."""
        return [[one[at][1] for one in shown] for at in range(len(self.variables))]


def _kind(variable: Variable) -> Kind:
    value = variable.raw()
    if not device.is_there(value):
        value = variable.get()
    return device.kind_of(value), tuple(value.shape)


def _writable(array: Any) -> Any:
    flat = array.reshape(-1)
    if not flat.flags.writeable:
        flat = flat.copy()
    return flat.view(np.uint8)


_VERBS: tuple[type[Move], ...] = (
    Broadcast,
    Scatter,
    Gather,
    AllGather,
    Reduce,
    AllReduce,
    SetValue,
    GetValue,
    GetShapes,
)

MOVES: dict[str, Maker] = {verb.operation: verb for verb in _VERBS}
"""The moves, by name."""
