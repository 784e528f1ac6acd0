"""What every rank does when the master moves shared variables: one class for each verb."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.functions import outputs
from unisono.functions.batch import Place
from unisono.functions.member import Maker, Member
from unisono.functions.variables import Variable

Kind = tuple[str, tuple[int, ...]]
"""Type and shape of a rank's copy."""


class Move:
    """What all moves have in common: the variables, and a look at everybody's types and shapes."""

    operation = "move"

    def __init__(self, member: Member, numbers: list[int]) -> None:
        self.member = member
        self.variables: list[Variable] = [member.variables.variable(number) for number in numbers]

    def prepare(self) -> Any:
        """Shows nothing."""
        return None

    def problem(self, shown: list[Any]) -> Exception | None:
        """There is none."""
        return None

    def finish(self, shown: list[Any]) -> Any:
        """Does nothing."""
        return None

    def kinds(self) -> list[Kind]:
        """This rank's types and shapes."""
        arrays = [variable.get() for variable in self.variables]
        return [(array.dtype.str, array.shape) for array in arrays]

    def lend_all(self) -> list[tuple[str, tuple[int, ...], int]]:
        """Copies this rank's values to where all can read them."""
        shown = []
        for variable in self.variables:
            array = variable.get()
            shown.append((array.dtype.str, array.shape, self.member.lend(array)))
        return shown

    def read(self, lent: tuple[str, tuple[int, ...], int]) -> Any:
        """What another rank has lent."""
        dtype, shape, place = lent
        return self.member.link.view(place, dtype, shape)

    def differences(self, shown: list[Any], skip: int) -> Exception | None:
        """Fails unless all ranks have one type and shape, but for the first `skip` axes."""
        for at, variable in enumerate(self.variables):
            kinds = [one[at][:2] for one in shown]
            if len({(kind, shape[skip:]) for kind, shape in kinds}) > 1:
                each = ", ".join(f"{np.dtype(kind).name} {shape}" for kind, shape in kinds)
                return ValueError(
                    f"{self.operation}: expected {variable.name} to have one type and shape on all workers, "
                    f"received {each}"
                )
        return None


class Broadcast(Move):
    """The master's values go to everybody; those that lie in shared memory are read there."""

    operation = "broadcast"

    def __init__(self, member: Member, numbers: list[int], places: list[Place | Kind]) -> None:
        super().__init__(member, numbers)
        self._places = places

    def finish(self, shown: list[Any]) -> None:
        """Copies them."""
        link, member = self.member.link, self.member
        for variable, place in zip(self.variables, self._places, strict=True):
            if len(place) == 3:
                variable.set(link.view(*place))
                continue
            dtype, shape = place
            array = np.ascontiguousarray(variable.get()) if member.is_master else np.empty(shape, dtype)
            # Every type travels as bytes. The root's are only read.
            link.group.broadcast(_writable(array), member.master, True, link.timeout)
            if not member.is_master:
                variable.set(array)


class Scatter(Move):
    """Every rank takes its rows of values in shared memory."""

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
        """Copies them."""
        link = self.member.link
        chosen: Any = slice(*self._parts[self.member.rank])
        if self._rows is not None:
            chosen = link.view(*self._rows)[chosen]
        for variable, place in zip(self.variables, self._places, strict=True):
            variable.set(link.view(*place)[chosen])


class Gather(Move):
    """The master gets everybody's values."""

    operation = "gather"

    def prepare(self) -> Any:
        """Lends this rank's."""
        return self.lend_all()

    def finish(self, shown: list[Any]) -> Any:
        """The master copies them: for each variable a list over ranks."""
        if not self.member.is_master:
            return None
        return [[np.array(self.read(one[at])) for one in shown] for at in range(len(self.variables))]


class AllGather(Move):
    """Everybody gets everybody's values, one after the other."""

    operation = "all_gather"

    def prepare(self) -> Any:
        """Lends this rank's."""
        return self.lend_all()

    def problem(self, shown: list[Any]) -> Exception | None:
        """Rows must fit together."""
        if any(not one[at][1] for one in shown for at in range(len(self.variables))):
            return ValueError("all_gather: expected variables with at least one axis, received one without")
        return self.differences(shown, 1)

    def finish(self, shown: list[Any]) -> None:
        """Puts them together."""
        for at, variable in enumerate(self.variables):
            variable.set(np.concatenate([self.read(one[at]) for one in shown]))


class Reduce(Move):
    """The master gets the combination of everybody's values."""

    operation = "reduce"
    everybody = False

    def __init__(self, member: Member, numbers: list[int], op: str, in_place: bool = True) -> None:
        super().__init__(member, numbers)
        self._op, self._in_place = op, in_place

    def prepare(self) -> Any:
        """Shows types and shapes; values of types that cannot be combined together are lent."""
        shown = []
        for variable in self.variables:
            array = variable.get()
            place = -1 if array.dtype in outputs.CARRIED else self.member.lend(array)
            shown.append((array.dtype.str, array.shape, place))
        return shown

    def problem(self, shown: list[Any]) -> Exception | None:
        """Types and shapes must agree, and averages must exist."""
        if self._op == "avg":
            for at, variable in enumerate(self.variables):
                kind = np.dtype(shown[0][at][0])
                if kind.kind not in "fc":
                    return TypeError(
                        f"{self.operation}: expected floating point for op 'avg', received {kind.name} in "
                        f"{variable.name}; leave it out, use 'max', or name the module that has it"
                    )
        return self.differences(shown, 0)

    def finish(self, shown: list[Any]) -> Any:
        """Combines them."""
        results = [
            self._combine(variable, [one[at] for one in shown]) for at, variable in enumerate(self.variables)
        ]
        return None if self._in_place else results

    def _combine(self, variable: Variable, shown: list[Any]) -> Any:
        link, member = self.member.link, self.member
        gets_it = self.everybody or member.is_master
        if shown[0][2] >= 0:
            if gets_it:
                return self._keep(variable, outputs.fold(self._op, [self.read(one) for one in shown]))
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
        return array if np.may_share_memory(array, held) else self._keep(variable, array)

    def _keep(self, variable: Variable, array: Any) -> Any:
        if self._in_place:
            variable.set(array)
        return array


class AllReduce(Reduce):
    """Everybody gets the combination of everybody's values."""

    operation = "all_reduce"
    everybody = True


class SetValue(Move):
    """One rank takes values out of shared memory."""

    operation = "set_value"

    def __init__(
        self, member: Member, numbers: list[int], rank: int, places: list[Place], rows: slice | Place | None
    ) -> None:
        super().__init__(member, numbers)
        self._rank, self._places, self._rows = rank, places, rows

    def prepare(self) -> None:
        """Copies them."""
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
        """That rank lends them."""
        return self.lend_all() if self.member.rank == self._rank else None

    def finish(self, shown: list[Any]) -> Any:
        """The master copies them."""
        return [np.array(self.read(one)) for one in shown[self._rank]] if self.member.is_master else None


class GetShapes(Move):
    """The master learns everybody's shapes."""

    operation = "get_shapes"

    def prepare(self) -> Any:
        """Shows this rank's."""
        return self.kinds()

    def finish(self, shown: list[Any]) -> Any:
        """For each variable a list over ranks."""
        return [[one[at][1] for one in shown] for at in range(len(self.variables))]


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
"""By name."""
