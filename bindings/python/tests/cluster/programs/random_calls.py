"""Random calls with known results, until time is up or a call fails because of a fault that the test causes.

Arguments: a seed, the duration in seconds, the timeout of a call in seconds. A rank notes `running`, and in
the end `done`, its error, or `wrong` and the call whose result was not the expected one.
"""

import random
import sys
import time

import numpy as np

import unisono as uni
from note import note

SEED, SECONDS, TIMEOUT = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
# Around the sizes at which transports and collectives choose another way, and a few windows of them.
LENGTHS = [0, 1, 7, 1000, 4099, 40_000, 300_000]
JOIN_SECONDS = 60


class WrongError(Exception):
    """A call that returned something else than it should."""


def check(name, found, expected):
    """Fails unless the arrays have the same elements."""
    found, expected = np.ravel(found), np.ravel(expected)
    if found.size != expected.size:
        raise WrongError(f"{name}: {found.size} elements instead of {expected.size}")
    differing = np.flatnonzero(found != expected)
    if differing.size:
        at = differing[0]
        raise WrongError(f"{name}: {differing.size} of {found.size}; {found[at]}, not {expected[at]} at {at}")


class Program:
    """Calls that every rank draws from the same dice, hence in the same order."""

    def __init__(self, world):
        self.world, self.rank, self.size = world, world.rank, world.size
        self.dice = random.Random(SEED)
        self.backwards = world.group(list(reversed(range(world.size))))
        self.table = uni.ArrayTable(500, consistency="async")
        self.adds = 0
        self.whole = np.arange(24 * 300, dtype="float64").reshape(24, 300)
        self.array = uni.GlobalArray(self.whole.shape, uni.Grid(h=-1), split={"h": 0})
        self.window = self.array.window(kernel=(5, 1), padding=(2, 0))

    def parts(self, length, add):
        """Returns what each rank of a group of all ranks passes to a call."""
        return [np.arange(length) % 1000 + rank + add for rank in range(self.size)]

    def call(self):
        """Makes one random call, and checks its result."""
        dice, group = self.dice, self.dice.choice([self.world, self.world, self.backwards])
        rank, size, root = group.rank, self.size, dice.randrange(self.size)
        length, add = dice.choice(LENGTHS), dice.randrange(1000)
        parts = self.parts(length, add)
        x, total = parts[rank].astype(dice.choice(["int64", "float64"])), sum(parts)
        match dice.choice(VERBS):
            case "barrier":
                group.barrier()
            case "all_reduce" if dice.random() < 0.3:
                pending = group.all_reduce(x, wait=False)
                group.barrier()
                check("all_reduce in the background", pending.wait(), total)
            case "all_reduce":
                check("all_reduce", group.all_reduce(x), total)
            case "reduce":
                group.reduce(x, root=root)
                check("reduce", x, total if rank == root else parts[rank])
            case "broadcast":
                check("broadcast", group.broadcast(x, root=root), parts[root])
            case "all_gather":
                check("all_gather", group.all_gather(x), np.array(parts))
            case "gather":
                found = group.gather(x, root=root)
                check("gather", found if rank == root else np.array(parts), np.array(parts))
            case "scatter":
                check("scatter", group.scatter(np.array(parts) if rank == root else None, root), parts[rank])
            case "reduce_scatter":
                blocks = np.array([x + number for number in range(size)])
                check("reduce_scatter", group.reduce_scatter(blocks), total + size * rank)
            case "all_to_all":
                blocks = np.array([x + number for number in range(size)])
                check("all_to_all", group.all_to_all(blocks), np.array(parts) + rank)
            case "messages":
                sent = group.send(x, (rank + 1) % size, tag=3, wait=False)
                before = (rank - 1) % size
                check("recv", group.recv(np.zeros_like(x), before, tag=3), parts[before])
                sent.wait()
            case "table":
                self.table.add(np.ones(500, "float32"))
                self.adds += 1
                values = self.table.get()
                if not (self.adds <= values).all() or not (values <= size * self.adds).all():
                    raise WrongError(f"get: {values} after {self.adds} adds by each of {size} ranks")
                self.world.barrier()
                check("get", self.table.get(), np.full(500, size * self.adds, "float32"))
                self.world.barrier()
            case "halo":
                rows, _ = self.window.needed
                expected = np.pad(self.whole, [(2, 2), (0, 0)])[rows[0] + 2 : rows[1] + 2]
                check("forward", self.window.forward(self.whole[self.array.region]), expected)
                ones = self.window.adjoint(np.ones(self.window.padded_shape))
                count = self.world.all_reduce(np.array([ones.sum()]))[0]
                inside = np.pad(np.ones_like(self.whole), [(2, 2), (0, 0)])
                needed = [self.window.needed_by(one)[0] for one in range(size)]
                check("adjoint", count, sum(inside[low + 2 : high + 2].sum() for low, high in needed))

    def run(self):
        """Makes calls until the first rank finds that time is up."""
        end = time.monotonic() + SECONDS
        while self.world.broadcast(np.array([int(time.monotonic() < end)]))[0]:
            for _ in range(5):
                self.call()


VERBS = [
    "barrier", "all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter",
    "all_to_all", "messages", "table", "halo",
]  # fmt: skip


def main():
    """Joins, makes calls, and notes how they ended."""
    world = uni.init(timeout=JOIN_SECONDS)
    try:
        program = Program(world)
        world.barrier()
        uni.init(timeout=TIMEOUT)
        note(world.rank, "running")
        program.run()
        note(world.rank, "done")
    except BaseException as error:
        note(world.rank, f"{'wrong' if isinstance(error, WrongError) else type(error).__name__}: {error}")
        raise


if __name__ == "__main__":
    main()
