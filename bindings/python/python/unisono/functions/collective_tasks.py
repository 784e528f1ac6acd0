"""The tasks that move shared variables between ranks: one class for each collective."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.functions import device, outputs
from unisono.functions.batch import ArenaArray
from unisono.functions.member import Maker, Member
from unisono.functions.variables import Variable

Kind = tuple[str, tuple[int, ...]]
"""Type and shape of a rank's copy."""


class CollectiveTask:
    """Base class of all moves: the variables, and a comparison of types and shapes across ranks."""

    operation = "move"
    keeps_on_device = False
    """Whether values on a device move between devices, instead of through memory that all ranks can read."""

    def __init__(self, member: Member, numbers: list[int]) -> None:
        self.member = member
        self.variables: list[Variable] = [member.variables.variable(number) for number in numbers]

    def prepare(self) -> Any:
        """Publishes nothing."""
        return None

    def problem(self, published: list[Any]) -> Exception | None:
        """Always None."""
        return None

    def finish(self, published: list[Any]) -> Any:
        """Does nothing."""
        return None

    def kinds(self) -> list[Kind]:
        """The types and shapes of this rank's values."""
        return [_kind(variable) for variable in self.variables]

    def copy_all_to_arena(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Copies this rank's values to memory that all ranks can read."""
        published = []
        for variable in self.variables:
            if self.keeps_on_device and device.is_there(variable.raw()):
                published.append((*_kind(variable), -1))
                continue
            array = variable.get()
            published.append((array.dtype.str, array.shape, self.copy_to_arena(variable, array)))
        return published

    def copy_to_arena(self, variable: Variable, array: Any) -> int:
        """Copies a value to memory that all ranks can read: only numbers, as others hold local pointers."""
        outputs.check_type(array.dtype, f"{self.operation}: {variable.name}")
        return self.member.copy_to_arena(array)

    def read(self, described: tuple[str, tuple[int, ...], int]) -> Any:
        """A view of a value that another rank has published."""
        dtype, shape, location = described
        return self.member.link.view(location, dtype, shape)

    def differences(self, published: list[Any], skip: int) -> Exception | None:
        """An error unless all ranks agree in type and shape, ignoring the first `skip` axes."""
        for at, variable in enumerate(self.variables):
            kinds = [one[at][:2] for one in published]
            if len({(kind, shape[skip:]) for kind, shape in kinds}) > 1:
                each = ", ".join(f"{device.title(kind)} {shape}" for kind, shape in kinds)
                return ValueError(
                    f"{self.operation}: expected {variable.name} to have one type and shape on all workers, "
                    f"received {each}"
                )
        return None


class Broadcast(CollectiveTask):
    """Copies the master's values to all ranks; values in shared memory are read there."""

    operation = "broadcast"

    def __init__(self, member: Member, numbers: list[int], locations: list[ArenaArray | Kind]) -> None:
        super().__init__(member, numbers)
        self._locations = locations

    def prepare(self) -> Any:
        """Publishes the kinds of the values, if any value is on a device."""
        return self.kinds() if any(location[0] == device.PREFIX for location in self._locations) else None

    def problem(self, published: list[Any]) -> Exception | None:
        """A value on a device at one rank must have the same kind and shape on all ranks."""
        return self.differences(published, 0) if published[0] is not None else None

    def finish(self, published: list[Any]) -> None:
        """Copies the values."""
        link, member = self.member.link, self.member
        for variable, location in zip(self.variables, self._locations, strict=True):
            if location[0] == device.PREFIX:
                variable.put(device.broadcast(member, variable.raw()))
                continue
            if len(location) == 3:
                variable.set(link.view(*location))
                continue
            dtype, shape = location
            array = np.ascontiguousarray(variable.get()) if member.is_master else np.empty(shape, dtype)
            # Every type is sent as bytes. The root's bytes are only read.
            link.group.broadcast(_writable(array), member.master, True, link.timeout)
            if not member.is_master:
                variable.set(array)


class Scatter(CollectiveTask):
    """Every rank copies its rows of values in shared memory."""

    operation = "scatter"

    def __init__(
        self,
        member: Member,
        numbers: list[int],
        locations: list[ArenaArray],
        parts: list[tuple[int, int]],
        rows: ArenaArray | None,
    ) -> None:
        super().__init__(member, numbers)
        self._locations, self._parts, self._rows = locations, parts, rows

    def prepare(self) -> None:
        """Copies the rows."""
        link = self.member.link
        chosen: Any = slice(*self._parts[self.member.rank])
        if self._rows is not None:
            chosen = link.view(*self._rows)[chosen]
        for variable, location in zip(self.variables, self._locations, strict=True):
            variable.set(link.view(*location)[chosen])


class Gather(CollectiveTask):
    """The master gets the values of all ranks."""

    operation = "gather"
    keeps_on_device = True

    def prepare(self) -> Any:
        """Publishes this rank's values."""
        return self.copy_all_to_arena()

    def finish(self, published: list[Any]) -> Any:
        """The master copies the values: for each variable a list over ranks."""
        return [
            self._collect(variable, [one[at] for one in published])
            for at, variable in enumerate(self.variables)
        ]

    def problem(self, published: list[Any]) -> Exception | None:
        """A value on a device at one rank must be on a device at all ranks."""
        for at, variable in enumerate(self.variables):
            kinds = {one[at][0] for one in published}
            if len(kinds) > 1 and any(kind.startswith(device.PREFIX) for kind in kinds):
                each = ", ".join(device.title(one[at][0]) for one in published)
                return ValueError(f"gather: expected {variable.name} in one kind of memory, received {each}")
        return None

    def _collect(self, variable: Variable, published: list[device.Published]) -> Any:
        member = self.member
        if device.is_there(variable.raw()):
            return device.gathered(
                member, variable.raw(), [shape for _, shape, _ in published], member.master
            )
        return [np.array(self.read(one)) for one in published] if member.is_master else None


class AllGather(CollectiveTask):
    """Every rank gets the values of all ranks, concatenated."""

    operation = "all_gather"

    def prepare(self) -> Any:
        """Publishes this rank's values."""
        return self.copy_all_to_arena()

    keeps_on_device = True

    def problem(self, published: list[Any]) -> Exception | None:
        """Rows must have compatible shapes."""
        if any(not one[at][1] for one in published for at in range(len(self.variables))):
            return ValueError("all_gather: expected variables with at least one axis, received one without")
        return self.differences(published, 1)

    def finish(self, published: list[Any]) -> None:
        """Concatenates the values."""
        for at, variable in enumerate(self.variables):
            if device.is_there(variable.raw()):
                parts = device.gathered(self.member, variable.raw(), [one[at][1] for one in published], None)
                variable.put(device.joined(parts or [], 0))
                continue
            variable.set(np.concatenate([self.read(one[at]) for one in published]))


class Reduce(CollectiveTask):
    """The master gets the combination of the values of all ranks."""

    operation = "reduce"
    to_all = False

    def __init__(self, member: Member, numbers: list[int], op: str, in_place: bool = True) -> None:
        super().__init__(member, numbers)
        self._op, self._in_place = op, in_place

    def prepare(self) -> Any:
        """Publishes types and shapes; values of types without a collective reduction go to shared memory."""
        published = []
        for variable in self.variables:
            if device.is_there(variable.raw()):
                published.append((*_kind(variable), -1))
                continue
            array = variable.get()
            location = -1 if array.dtype in outputs.CARRIED else self.copy_to_arena(variable, array)
            published.append((array.dtype.str, array.shape, location))
        return published

    def problem(self, published: list[Any]) -> Exception | None:
        """Types and shapes must agree, and averages must exist for the type."""
        if self._op == "avg":
            for at, variable in enumerate(self.variables):
                kind = published[0][at][0]
                if not device.is_float(kind):
                    return TypeError(
                        f"{self.operation}: expected floating point for op 'avg', received "
                        f"{device.title(kind)} in {variable.name}; leave it out, use 'max', or name "
                        "the module that has it"
                    )
        return self.differences(published, 0)

    def finish(self, published: list[Any]) -> Any:
        """Combines the values."""
        results = [
            self._combine(variable, [one[at] for one in published])
            for at, variable in enumerate(self.variables)
        ]
        return None if self._in_place else results

    def _combine(self, variable: Variable, published: list[Any]) -> Any:
        link, member = self.member.link, self.member
        gets_it = self.to_all or member.is_master
        if device.is_there(variable.raw()):
            return self._combine_on_device(variable)
        if published[0][2] >= 0:
            if gets_it:
                return self._store(variable, outputs.fold(self._op, [self.read(one) for one in published]))
            return None
        held = variable.get()
        flat = np.ascontiguousarray(held).reshape(-1)
        if self.to_all:
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
        if self.to_all:
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
    to_all = True


class SetValue(CollectiveTask):
    """One rank copies values from shared memory."""

    operation = "set_value"

    def __init__(
        self,
        member: Member,
        numbers: list[int],
        rank: int,
        locations: list[ArenaArray],
        rows: slice | ArenaArray | None,
    ) -> None:
        super().__init__(member, numbers)
        self._rank, self._locations, self._rows = rank, locations, rows

    def prepare(self) -> None:
        """Copies the values on that rank."""
        link = self.member.link
        if self._rank != self.member.rank:
            return
        chosen: Any = ... if self._rows is None else self._rows
        if isinstance(chosen, tuple):
            chosen = link.view(*chosen)
        for variable, location in zip(self.variables, self._locations, strict=True):
            variable.set(link.view(*location)[chosen])


class GetValue(CollectiveTask):
    """The master gets one rank's values."""

    operation = "get_value"

    def __init__(self, member: Member, numbers: list[int], rank: int) -> None:
        super().__init__(member, numbers)
        self._rank = rank

    def prepare(self) -> Any:
        """The selected rank publishes its values."""
        return self.copy_all_to_arena() if self.member.rank == self._rank else None

    def finish(self, published: list[Any]) -> Any:
        """The master copies the values."""
        return [np.array(self.read(one)) for one in published[self._rank]] if self.member.is_master else None


class GetShapes(CollectiveTask):
    """The master gets the shapes of all ranks."""

    operation = "get_shapes"

    def prepare(self) -> Any:
        """Publishes the types and shapes of this rank's values."""
        return self.kinds()

    def finish(self, published: list[Any]) -> Any:
        """The shapes: for each variable a list over ranks."""
        return [[one[at][1] for one in published] for at in range(len(self.variables))]


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


_VERBS: tuple[type[CollectiveTask], ...] = (
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

COLLECTIVE_TASKS: dict[str, Maker] = {verb.operation: verb for verb in _VERBS}
"""The moves, by name."""
