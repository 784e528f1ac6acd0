"""Collectives on CUDA memory, next to PyTorch's NCCL and to the memory bandwidth; a job of two ranks."""

from __future__ import annotations

from typing import Any

import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, bandwidth, device_turns
from unisono.bench.peers import join

SIZE = 100_000_000


def main() -> None:
    """Measures on the path that the job was started with."""
    world = uni.init()
    torch.cuda.set_device(world.rank % torch.cuda.device_count())
    ours = torch.ones(SIZE // 4, device="cuda")
    theirs, target = torch.ones_like(ours), torch.empty_like(ours)
    pinned, source = (torch.empty(SIZE // 4, pin_memory=True) for _ in range(2))
    stream: Any = torch.cuda.Stream
    side = stream()
    distributed = join("nccl")
    speed = bandwidth()

    def both() -> None:
        """The copies of the staged path at once: every rank's values to the host, others' from there."""
        side.wait_stream(torch.cuda.current_stream())
        pinned.copy_(ours, non_blocking=True)
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)

    assert float(world.all_reduce(ours.fill_(1.0 + world.rank))[-1]) == sum(range(1, world.size + 1))
    path = world.cuda_path()
    times = device_turns(
        {
            "all_reduce": lambda: world.all_reduce(ours, "avg"),
            "nccl": lambda: distributed.all_reduce(theirs, op=distributed.ReduceOp.AVG),
            "broadcast": lambda: world.broadcast(ours),
            "all_gather": lambda: world.all_gather(ours),
            "pinned": lambda: pinned.copy_(ours, non_blocking=True),
            "both": both,
            "copy": lambda: target.copy_(ours),
        },
        group=world,
    )
    torch.cuda.synchronize()
    if world.rank:
        return
    megabytes = SIZE // 1_000_000
    name = f"all_reduce {megabytes} MB, {world.size} ranks by {path}"
    reduced = times["all_reduce"]
    if path == "ipc":
        bound = world.size * 3 * SIZE / speed
        Figure.of(name, reduced, "3 N a rank", bound, 0.5).show()
    if path == "staged":
        # Each rank's values are copied to the host once, and another rank's from there: the bound is the rate
        # at which all ranks together can copy both ways. One way alone is shown for comparison.
        Figure.of(name, reduced, "pinned, both ways", min(times["both"]), 0.8).show()
        Figure.of(name, reduced, "pinned, one way", min(times["pinned"])).show()
    wanted = 20.0 if path == "ipc" else None
    Figure.of(name, reduced, "PyTorch, NCCL", min(times["nccl"]), wanted).show()
    Figure.of(f"broadcast {megabytes} MB by {path}", times["broadcast"], "copies", min(times["copy"])).show()
    Figure.of(
        f"all_gather {megabytes} MB by {path}", times["all_gather"], "copies", min(times["copy"])
    ).show()


if __name__ == "__main__":
    main()
