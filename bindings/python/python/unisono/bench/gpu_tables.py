"""Tables on a device, next to the same work in PyTorch and to the memory bandwidth; a job of one rank."""

from __future__ import annotations

from typing import Any

import torch

import unisono as uni
from unisono.bench.gpu_figures import Figure, bandwidth, device_turns

ROWS, COLS, LISTED = 10_000_000, 64, 4_000_000
"""A table with rows of 256 bytes, and the number of rows in a call."""

WEIGHTS = 256_000_000


def rows(speed: float) -> None:
    """Gets and adds of rows."""
    table = uni.MatrixTable(ROWS, COLS, device="cuda", init=uni.normal(0, 1))
    theirs = table.get()
    ids = torch.randint(0, ROWS, (LISTED,), device="cuda")
    ours, reference = (torch.empty(LISTED, COLS, device="cuda") for _ in range(2))
    delta = torch.randn(LISTED, COLS, device="cuda")
    times = device_turns(
        {
            "get": lambda: table.get(ids, out=ours),
            "index_select": lambda: torch.index_select(theirs, 0, ids, out=reference),
        }
    )
    assert torch.equal(ours, reference)
    moved = 2 * LISTED * COLS * 4
    name = f"get {LISTED // 1_000_000} M rows of 256 B out of {ROWS // 1_000_000} M"
    Figure.of(name, times["get"], "bandwidth", moved / speed, 0.6).show()
    Figure.of(name, times["get"], "index_select", min(times["index_select"]), 1.2).show()

    few = torch.randint(0, ROWS // 100, (LISTED,), device="cuda")
    adds("rows", table, theirs, ids, delta)
    adds("rows, 40 times each", table, theirs, few, delta)
    assert torch.allclose(table.get(few[:1000]), theirs[few[:1000]], rtol=1e-3, atol=1e-2)


def adds(
    words: str, table: uni.MatrixTable, theirs: torch.Tensor, ids: torch.Tensor, delta: torch.Tensor
) -> None:
    """Adds to listed rows, in Unisono and in PyTorch."""
    times = device_turns(
        {
            "add": lambda: table.add(delta, ids, wait=True),
            "index_add_": lambda: theirs.index_add_(0, ids, delta),
        },
        rounds=10,
    )
    name = f"add {LISTED // 1_000_000} M {words}"
    Figure.of(name, times["add"], "index_add_", min(times["index_add_"]), 1.5).show()


def adam(speed: float) -> None:
    """A step of adam on all weights."""
    gradient = torch.randn(WEIGHTS, device="cuda")
    theirs, mean, square = (torch.zeros(WEIGHTS, device="cuda") for _ in range(3))
    step = torch.zeros((), device="cuda")
    fused: Any = torch._fused_adam_

    def pytorch() -> None:
        step.add_(1)
        fused(
            [theirs],
            [gradient],
            [mean],
            [square],
            [],
            [step],
            lr=0.001,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    table = uni.ArrayTable(WEIGHTS, updater="adam", device="cuda")
    times = device_turns({"adam": lambda: table.add(gradient, wait=True), "pytorch": pytorch})
    assert torch.allclose(table.get(), theirs, rtol=1e-4, atol=1e-6)
    name = f"adam on {WEIGHTS // 1_000_000} M weights"
    Figure.of(name, times["adam"], "bandwidth", 7 * 4 * WEIGHTS / speed, 0.8).show()
    Figure.of(name, times["adam"], "PyTorch, fused", min(times["pytorch"])).show()


def through_the_host() -> None:
    """A table in host memory, and an array on the device."""
    count = 25_000_000
    table = uni.ArrayTable(count, init=1)
    out, pinned = torch.empty(count, device="cuda"), torch.empty(count, pin_memory=True)
    plain = torch.empty(count)

    def by_hand() -> None:
        table.get(out=plain)
        out.copy_(plain)

    times = device_turns(
        {
            "get": lambda: table.get(out=out),
            "by hand": by_hand,
            "add": lambda: table.add(out, wait=True),
            "pinned": lambda: out.copy_(pinned, non_blocking=True),
        },
        rounds=8,
    )
    name = "100 MB between a host's table and the device"
    Figure.of(f"get {name}", times["get"], "get, then copy", min(times["by hand"])).show()
    Figure.of(f"get {name}", times["get"], "a pinned copy", min(times["pinned"])).show()
    Figure.of(f"add {name}", times["add"], "a pinned copy", min(times["pinned"])).show()


def main() -> None:
    """Runs all measurements."""
    uni.init()
    speed = bandwidth()
    rows(speed)
    torch.cuda.empty_cache()
    adam(speed)
    through_the_host()


if __name__ == "__main__":
    main()
