"""Trains the same network alternately with functions and with PyTorch's DistributedDataParallel over Gloo.

Both start from the same weights, take the same rows in each step and make the same update; the losses are
checked to agree. Needs PyTorch: `make bench-peers` installs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

LIMIT = 600
WARM = 2


def rows_of(steps: int, batch: int) -> np.ndarray:
    """The rows of every step."""
    return np.random.default_rng(1).integers(0, 4 * batch, (steps, batch))


def by_functions(workers: int, steps: int, batch: int) -> tuple[list[float], list[float]]:
    """Seconds and loss of every step."""
    from unisono import functions
    from unisono.bench.digits import digits_step

    functions.fork(workers)
    step = digits_step(batch)
    times, losses = [], []
    for _ in range(steps):
        began = time.perf_counter()
        losses.append(float(step()))
        times.append(time.perf_counter() - began)
    functions.close()
    return times, losses


def by_ranks(steps: int, batch: int) -> tuple[list[float], list[float]]:
    """The same on each rank of a job started by torchrun."""
    import torch
    import torch.distributed as ranks

    from unisono.bench.digits import images, network

    ranks.init_process_group("gloo")
    rank, size = ranks.get_rank(), ranks.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    pixels, labels = (torch.from_numpy(array) for array in images(4 * batch))
    times, losses = [], []
    for rows in rows_of(steps, batch):
        ranks.barrier()
        began = time.perf_counter()
        own = torch.from_numpy(np.array_split(rows, size)[rank])
        loss = torch.nn.functional.cross_entropy(model(pixels[own]), labels[own])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        ranks.all_reduce(mean)
        times.append(time.perf_counter() - began)
        losses.append(float(mean) / size)
    ranks.destroy_process_group()
    return times, losses


def measure(contender: str, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Starts one side in separate processes."""
    program = [__file__, contender, "--steps", str(options.steps), "--batch", str(options.batch)]
    launcher = [sys.executable]
    if contender == "gloo":
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.workers)]
    done = subprocess.run(
        [*launcher, *program, "--workers", str(options.workers)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{contender} failed:\n{done.stdout}{done.stderr}")
    times, losses = json.loads(done.stdout.splitlines()[-1])
    return times[WARM:], losses


def compare(options: argparse.Namespace) -> None:
    """Runs both alternately and prints how much faster each one is."""
    taken: dict[str, list[float]] = {"functions": [], "gloo": []}
    for _ in range(options.rounds):
        curves = {}
        for contender in taken:
            times, curves[contender] = measure(contender, options)
            taken[contender] += times
        np.testing.assert_allclose(curves["functions"], curves["gloo"], rtol=1e-3)
    print(f"steps of {options.batch} rows, a CNN on digits, {options.workers} workers with one thread each")
    print(f"{'':<28}{'minimum':>12}{'median':>12}")
    for contender, name in (("functions", "unisono functions"), ("gloo", "PyTorch DDP over Gloo")):
        times = taken[contender]
        print(f"{name:<28}{min(times) * 1e3:>9.1f} ms{np.median(times) * 1e3:>9.1f} ms")
    ratio = np.median(taken["gloo"]) / np.median(taken["functions"])
    print(f"functions are {ratio:.2f} times as fast, by the median")


def main() -> None:
    """Compares both; or, inside a job, runs one of the two sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contender", nargs="?", choices=["functions", "gloo"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.contender is None:
        compare(options)
        return
    import torch

    torch.set_num_threads(1)
    if options.contender == "functions":
        print(json.dumps(by_functions(options.workers, options.steps, options.batch)))
    else:
        result = by_ranks(options.steps, options.batch)
        if os.environ["RANK"] == "0":
            print(json.dumps(result))


if __name__ == "__main__":
    main()
