"""Measures torch.distributed over the backends `unisono` and `gloo` alternately, and prints how they compare.

Every round starts the ranks of each backend once, so that both run under the same conditions; results are
checked on every rank. A time is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BACKENDS = ["unisono", "gloo"]
SIZES = [4096, 1_000_000, 100_000_000]


def calls(name: str, bytes_: int, rank: int, ranks: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """One call of a collective, and the check of its result; sizes are those of the larger tensor."""
    count = bytes_ // 4 // ranks * ranks
    whole, part = torch.zeros(count), torch.full((count // ranks,), float(rank + 1))
    total = ranks * (ranks + 1) / 2

    def fill() -> None:
        whole.fill_(rank + 1.0)

    def check_sum(x: torch.Tensor) -> None:
        assert x.eq(total).all(), f"{name}: {x}"

    if name == "all_reduce":

        def check() -> None:
            fill()
            dist.all_reduce(whole)
            check_sum(whole)
            whole.zero_()

        return (lambda: dist.all_reduce(whole)), check
    if name == "all_reduce with a future":

        def check() -> None:
            fill()
            check_sum(dist.all_reduce(whole, async_op=True).get_future().wait()[0])
            whole.zero_()

        return (lambda: dist.all_reduce(whole, async_op=True).get_future().wait()), check
    if name == "all_gather_into_tensor":

        def check() -> None:
            dist.all_gather_into_tensor(whole, part)
            assert [row.unique().tolist() for row in whole.view(ranks, -1)] == [
                [r + 1.0] for r in range(ranks)
            ]

        return (lambda: dist.all_gather_into_tensor(whole, part)), check

    def check() -> None:
        fill()
        out = torch.empty_like(part)
        dist.reduce_scatter_tensor(out, whole)
        check_sum(out)

    out = torch.empty_like(part)
    return (lambda: dist.reduce_scatter_tensor(out, whole)), check


NAMES = ["all_reduce", "all_reduce with a future", "all_gather_into_tensor", "reduce_scatter_tensor"]


def measure(rank: int, ranks: int, backend: str, folder: str, sizes: list[int], seconds: float) -> None:
    """The process of one rank."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    times: dict[str, list[float]] = {}
    for name in NAMES:
        for size in sizes:
            call, check = calls(name, size, rank, ranks)
            check()
            for _ in range(3):
                call()
            begin = time.perf_counter()
            call()
            longest = torch.tensor([time.perf_counter() - begin])
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            repeats = int(min(1000, max(5, seconds / longest.item())))
            found = []
            for _ in range(repeats):
                begin = time.perf_counter()
                call()
                found.append(time.perf_counter() - begin)
            slowest = torch.tensor(found)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times[f"{name} {size}"] = slowest.tolist()
            check()
    if rank == 0:
        Path(folder, "times.json").write_text(json.dumps(times))
    dist.destroy_process_group()


def main() -> None:
    """Runs all rounds and prints microseconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each collective, size and round")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {backend: {} for backend in BACKENDS}
    for _ in range(options.rounds):
        for backend in BACKENDS:
            with tempfile.TemporaryDirectory() as folder:
                arguments = (options.ranks, backend, folder, options.sizes, options.seconds)
                mp.spawn(measure, arguments, nprocs=options.ranks)
                for key, times in json.loads(Path(folder, "times.json").read_text()).items():
                    found[backend].setdefault(key, []).extend(times)
    print(f"{options.ranks} ranks, microseconds: unisono minimum / median, gloo minimum / median, ratios")
    for key, ours in found["unisono"].items():
        theirs = found["gloo"][key]
        low, middle = [[f(times) * 1e6 for f in (min, statistics.median)] for times in (ours, theirs)]
        ratios = [b / a for a, b in zip(low, middle, strict=True)]
        print(
            f"{key:>40}  {low[0]:10.1f} / {low[1]:10.1f}  {middle[0]:10.1f} / {middle[1]:10.1f}  "
            f"{ratios[0]:5.1f}x {ratios[1]:5.1f}x"
        )


if __name__ == "__main__":
    main()
