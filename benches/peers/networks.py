"""Times one training step of two convolutional networks alternately with PyTorch, one thread each.

The networks are those of `experiments/`, with the same sizes, rules and batch, on random pictures.
`unisono bench nn` and PyTorch run in separate processes, one after the other, in several rounds.
Both sides check that the cost decreases. Needs PyTorch: `make bench-peers` installs it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

LIMIT = 600
WARM = 3
NETWORKS = ("mnist", "cifar10")
WANTED = 1.0


def by_torch(name: str, batch: int, seconds: float) -> list[float]:
    """CPU seconds of each step, as `unisono bench nn` counts them."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if name == "mnist":
        shape = (1, 28, 28)
        model = nn.Sequential(
            nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
        )  # fmt: skip
    else:
        shape = (3, 32, 32)
        model = nn.Sequential(
            nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
    pictures = torch.rand(batch, *shape)
    labels = torch.arange(batch) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=0.0005)
    times: list[float] = []
    costs: list[float] = []
    end = time.monotonic() + seconds
    while len(times) < WARM + 5 or time.monotonic() < end:
        began = time.thread_time()
        cost = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        times.append(time.thread_time() - began)
        costs.append(float(cost.detach()))
    # Not the last cost: on random numbers it may be rising.
    if not any(cost < costs[0] for cost in costs) or any(map(math.isnan, costs)):
        raise SystemExit(f"the cost of {name} did not fall: {costs[-1]} after {costs[0]}")
    return times[WARM:]


def run(command: list[str]) -> str:
    """Runs one side; returns its output, or its error."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def by_unisono(program: str, batch: int, seconds: float) -> dict[str, tuple[float, float]]:
    """Minimum and median of a step for each network."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nn.json"
        sizes = ["--batch", str(batch), "--seconds", str(seconds)]
        run([program, "bench", "nn", "--ranks", "1", *sizes, "--json", str(path)])
        rows = json.loads(path.read_text())
    return {row["network"]: (row["best_seconds"], row["median_seconds"]) for row in rows}


def compare(options: argparse.Namespace) -> None:
    """Runs both alternately and prints how much faster each one is."""
    taken: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for name, figures in by_unisono(options.program, options.batch, options.seconds).items():
            taken.setdefault((name, "unisono"), []).append(figures)
        for name in NETWORKS:
            arguments = [name, "--batch", str(options.batch), "--seconds", str(options.seconds)]
            times = json.loads(run([sys.executable, __file__, *arguments]).splitlines()[-1])
            taken.setdefault((name, "PyTorch"), []).append((min(times), statistics.median(times)))
    print(f"one training step, batch {options.batch}, one thread, {options.rounds} rounds in turns")
    print(f"{'network':<12}{'':<12}{'minimum':>12}{'median':>12}")
    for name in NETWORKS:
        seconds = {}
        for contender in ("unisono", "PyTorch"):
            figures = taken[name, contender]
            best = min(best for best, _ in figures)
            median = statistics.median(median for _, median in figures)
            seconds[contender] = best, median
            print(f"{name:<12}{contender:<12}{best * 1e3:>9.2f} ms{median * 1e3:>9.2f} ms")
        best, median = (
            theirs / ours for theirs, ours in zip(seconds["PyTorch"], seconds["unisono"], strict=True)
        )
        reached = "yes" if best >= WANTED else "NO"
        ratios = f"{best:.2f} times as fast by the minimum, {median:.2f} by the median"
        print(f"{name}: unisono is {ratios} (wanted: {WANTED}, {reached})")


def main() -> None:
    """Compares both; or runs the PyTorch side for one network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", nargs="?", choices=NETWORKS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each contender runs in a round")
    parser.add_argument("--rounds", type=int, default=10)
    default = Path(sys.executable).parent / "unisono"
    parser.add_argument("--program", default=str(default), help="the program unisono")
    options = parser.parse_args()
    if options.network is None:
        compare(options)
    else:
        print(json.dumps(by_torch(options.network, options.batch, options.seconds)))


if __name__ == "__main__":
    main()
