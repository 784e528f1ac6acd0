"""A training step to benchmark: a convolutional network on MNIST-like images, over the current workers."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# One thread each: the master computes alongside its workers. Libraries read this when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from unisono import functions

# By default the C library returns blocks above 32 MB to the system when they are freed. One worker's
# activations are above that, the halves of two are below: one worker would incur tens of thousands of page
# faults in every step.
_KEEP = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"


def network() -> Any:
    """The network, with the same weights in every run."""
    import torch

    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def images(count: int) -> tuple[Any, Any]:
    """Random images and labels: the time of a step does not depend on their content."""
    random = np.random.default_rng(0)
    return random.random((count, 1, 28, 28), dtype="float32"), random.integers(0, 10, count)


def digits_step(batch: int) -> Callable[[], Any]:
    """Makes the step: of `batch` rows in total, drawn from data in shared memory.

    Args:
        batch: The number of rows.

    Returns:
        A function without arguments that makes one step.
    """
    import torch

    model = network()

    def loss(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x), y)

    step = functions.make_train_function(loss, model, None, None, "nesterov_momentum", 0.01)
    pixels, labels = images(4 * batch)
    x, y = functions.data(pixels), functions.data(labels)
    random = np.random.default_rng(1)
    return lambda: step(x, y, batch=random.integers(0, 4 * batch, batch))


def step_times(rounds: int, workers: int, steps: int, batch: int) -> dict[int, list[float]]:
    """Times steps with one worker and with several, alternating, in processes that keep freed memory.

    Args:
        rounds: How often to start workers of each number.
        workers: The number of workers in the runs with several.
        steps: The number of steps to time in each round.
        batch: The number of rows of a step, in total.

    Returns:
        Seconds of each step, by number of workers.
    """
    numbers = [str(one) for one in (rounds, workers, steps, batch)]
    tunables = os.environ.get("GLIBC_TUNABLES")
    environment = {**os.environ, "GLIBC_TUNABLES": f"{tunables}:{_KEEP}" if tunables else _KEEP}
    done = subprocess.run(
        [sys.executable, "-m", "unisono.bench.digits", *numbers],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    taken: dict[str, list[float]] = json.loads(done.stdout)
    return {int(number): times for number, times in taken.items()}


def main() -> None:
    """Times steps according to the command line, and prints the times."""
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    for name in ("rounds", "workers", "steps", "batch"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    taken: dict[int, list[float]] = {1: [], options.workers: []}
    for _ in range(options.rounds):
        for number, times in taken.items():
            functions.fork(number)
            step = digits_step(options.batch)
            for _ in range(2):
                step()
            for _ in range(options.steps):
                began = time.perf_counter()
                step()
                times.append(time.perf_counter() - began)
            functions.close()
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
