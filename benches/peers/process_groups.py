"""Measures torch.distributed over the backends `unisono` and `gloo` alternately, and prints how they compare.

Every rank has a process group of each backend, and the two take turns under the same conditions;
results are checked on every rank. A time is that of the slowest rank.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import unisono.torch  # noqa: F401  # PyTorch before 2.14 does not find the backend by its name

BACKENDS = ["unisono", "gloo"]
SIZES = [4096, 1_000_000, 100_000_000]
NAMES = ["all_reduce", "all_reduce with a future", "all_gather_into_tensor", "reduce_scatter_tensor"]
WIDTH, DEPTH, BATCH = 2500, 4, 16
"""The network of the training steps: 25 M parameters."""
STEPS = ["DDP step", "FSDP2 step", "FSDP2 step in the group's memory"]
ALONE = "DDP step without communication"

Call = Callable[[], object]


def collective(name: str, bytes_: int, group: dist.ProcessGroup) -> tuple[Call, Call]:
    """One call of a collective, and the check of its result; sizes are those of the larger tensor."""
    rank, ranks = group.rank(), group.size()
    count = bytes_ // 4 // ranks * ranks
    whole, part = torch.zeros(count), torch.full((count // ranks,), float(rank + 1))
    out = torch.empty_like(part)

    def check_sum(x: torch.Tensor) -> None:
        assert x.eq(ranks * (ranks + 1) / 2).all(), f"{name}: {x}"

    if name.startswith("all_reduce"):

        def reduce() -> object:
            if name == "all_reduce":
                return dist.all_reduce(whole, group=group)
            return dist.all_reduce(whole, group=group, async_op=True).get_future().wait()

        def check() -> None:
            whole.fill_(rank + 1.0)
            reduce()
            check_sum(whole)
            whole.zero_()

        return reduce, check
    if name == "all_gather_into_tensor":

        def check() -> None:
            dist.all_gather_into_tensor(whole, part, group=group)
            for other, row in enumerate(whole.view(ranks, -1)):
                assert row.eq(other + 1.0).all(), f"{name}: {row}"

        return (lambda: dist.all_gather_into_tensor(whole, part, group=group)), check

    def check() -> None:
        whole.fill_(rank + 1.0)
        dist.reduce_scatter_tensor(out, whole, group=group)
        check_sum(out)

    return (lambda: dist.reduce_scatter_tensor(out, whole, group=group)), check


def training_step(name: str, group: dist.ProcessGroup) -> tuple[Call, Call]:
    """One training step, and the check that all ranks have the same weights."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)]
    network: torch.nn.Module = torch.nn.Sequential(*layers)
    if name.startswith("FSDP2"):
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in [*layers, network]:
            fully_shard(layer, mesh=mesh)
            if "group's memory" in name:
                layer.set_allocate_memory_from_process_group_for_comm(True)
    else:
        network = DistributedDataParallel(network, process_group=group)
        if name == ALONE:
            network.register_comm_hook(None, no_communication)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    torch.manual_seed(group.rank())
    x = torch.randn(BATCH, WIDTH)

    def step() -> None:
        network(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    def check() -> None:
        step()
        if name == ALONE:
            return
        total = torch.stack([p.detach().double().sum() for p in network.parameters()]).sum()
        total = total.full_tensor() if hasattr(total, "full_tensor") else total
        least, most = total.clone(), total.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        assert least == most, f"{name}: {least} and {most}"

    return step, check


def no_communication(_, bucket):  # type: ignore[no-untyped-def] # PyTorch rejects annotations that are strings
    """A hook that leaves the gradients of this rank in the bucket."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def measure(rank: int, ranks: int, folder: str, options: argparse.Namespace) -> None:
    """The process of one rank."""
    torch.set_num_threads(1)
    if options.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("unisono", store=store, rank=rank, world_size=ranks)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    if rank == 0:
        print(
            f"{ranks} ranks, microseconds: unisono minimum / median, gloo minimum / median, ratios",
            flush=True,
        )
    make: dict[str, Callable[[dist.ProcessGroup], tuple[Call, Call]]] = {
        f"{name} {size}": (lambda group, name=name, size=size: collective(name, size, group))
        for name in NAMES
        for size in options.sizes
    }
    make |= {name: (lambda group, name=name: training_step(name, group)) for name in STEPS}
    for name, start in make.items():
        if options.only is None or options.only in name:
            calls = {backend: start(group) for backend, group in groups.items()}
            if name == "DDP step":
                calls[ALONE] = training_step(ALONE, groups["unisono"])
            compare(name, calls, options)
    dist.destroy_process_group()


def compare(name: str, calls: dict[str, tuple[Call, Call]], options: argparse.Namespace) -> None:
    """Measures one case in turns, and prints its line at rank 0."""
    found: dict[str, list[float]] = {backend: [] for backend in calls}
    for _ in range(options.rounds):
        for backend, (call, check) in calls.items():
            check()
            for _ in range(3):
                begin = time.perf_counter()
                call()
                longest = torch.tensor([time.perf_counter() - begin])
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            times = []
            for _ in range(int(min(1000, max(5, options.seconds / longest.item())))):
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            slowest = torch.tensor(times)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            found[backend] += slowest.tolist()
            check()
    if dist.get_rank() == 0:
        ours, theirs, *alone = [[f(times) for f in (min, statistics.median)] for times in found.values()]
        report(name, ours, theirs)
        for least in alone:
            report(ALONE, least, least)
            subtract = [[a - b for a, b in zip(one, least, strict=True)] for one in (ours, theirs)]
            report("communication in a DDP step", *subtract)


def report(name: str, ours: list[float], theirs: list[float]) -> None:
    """Prints one line: minimum and median in microseconds, and their ratios."""
    times = [f"{times[0] * 1e6:10.1f} / {times[1] * 1e6:10.1f}" for times in (ours, theirs)]
    ratios = [f"{b / a:5.1f}x" for a, b in zip(ours, theirs, strict=True)]
    print(f"{name:>40}  {'  '.join(times)}  {' '.join(ratios)}", flush=True)


def main() -> None:
    """Runs all rounds and prints microseconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case, backend and round")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--pin", action="store_true", help="bind each rank, with all its threads, to a core")
    parser.add_argument("--only", help="the cases whose names contain this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measure, (options.ranks, folder, options), nprocs=options.ranks)


if __name__ == "__main__":
    main()
