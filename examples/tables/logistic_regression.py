"""Recognises handwritten digits with logistic regression, with the weights in a table that all workers share.

On one worker or on several, with a consistency of your choice:

    python examples/tables/logistic_regression.py
    unisono run -n 4 -- examples/tables/logistic_regression.py --consistency ssp:3

A small part of MNIST is in examples/data. For all of it, pass --data FOLDER or set the variable MNIST.
"""

import argparse
import gzip
import os
import sys
from pathlib import Path

# Workers run concurrently: with more than one thread each, they would slow each other down.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import unisono as uni

DIGITS = 10
PIXELS = 28 * 28


def read(folder: Path, name: str) -> np.ndarray:
    """Reads a file in MNIST's format: a magic number with the number of axes, their lengths, then bytes."""
    path = folder / name
    content = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def load(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images with values from 0 to 1 and a constant 1 for the bias, and their labels."""
    images = read(folder, f"{part}-images-idx3-ubyte").reshape(-1, PIXELS)
    ones = np.ones((len(images), 1), dtype="float32")
    return np.hstack([images / np.float32(255), ones]), read(folder, f"{part}-labels-idx1-ubyte")


def probabilities(images: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the probability of each digit for each image."""
    scores = images @ weights
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def gradient(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the gradient of the mean cross-entropy."""
    error = probabilities(images, weights)
    error[np.arange(len(labels)), labels] -= 1
    return images.T @ error / np.float32(len(labels))


def test_error(images: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float:
    """Returns the fraction of misclassified images."""
    return float((probabilities(images, weights).argmax(axis=1) != labels).mean())


def train(options: argparse.Namespace, world: uni.World) -> float:
    """Trains, and returns the test error at the end."""
    images, labels = load(options.data, "train")
    tests = load(options.data, "t10k")
    table = uni.MatrixTable(
        PIXELS + 1, DIGITS, updater="sgd", consistency=options.consistency, name="weights"
    )
    weights = np.empty(table.shape, dtype=table.dtype)
    # Each worker takes every n-th batch, and all take equally many: with bsp they must make the same calls.
    batches = len(images) // options.batch // world.workers
    error = 1.0
    for epoch in range(options.epochs):
        order = np.random.default_rng(epoch).permutation(len(images))
        for step in range(batches):
            batch = order[(step * world.workers + world.worker_id) * options.batch :][: options.batch]
            table.get(out=weights)
            table.add(np.float32(options.rate) * gradient(images[batch], labels[batch], weights))
            table.tick()
            if world.rank == 0 and sys.stdout.isatty():
                print(f"\repoch {epoch + 1}: batch {step + 1} of {batches}", end="", flush=True)
        uni.barrier()
        # Every worker calls get, although one would be enough: with bsp they must make the same calls.
        table.get(out=weights)
        error = test_error(*tests, weights)
        if world.rank == 0:
            start = "\r" if sys.stdout.isatty() else ""
            print(f"{start}epoch {epoch + 1}: test error {error:.1%}{' ' * 10}", flush=True)
        uni.barrier()
    if world.rank == 0:
        counts = table.staleness()
        mean = np.average(np.arange(len(counts)), weights=counts)
        print(f"the slowest worker was {mean:.1f} steps behind rank 0 on average, at most {len(counts) - 1}")
    return error


def main() -> None:
    """Trains with the options of the command line and checks the test error."""
    sample = Path(__file__).parents[1] / "data/mnist"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("MNIST", sample)), help="MNIST's four files"
    )
    parser.add_argument("--consistency", default="async", help="async, bsp or ssp:N")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=25, help="images in a batch of one worker")
    parser.add_argument("--rate", type=float, default=0.1, help="the learning rate")
    parser.add_argument(
        "--most", type=float, default=0.18, help="the highest test error that counts as success"
    )
    options = parser.parse_args()
    world = uni.init()
    error = train(options, world)
    if world.rank == 0:
        print(
            f"{world.workers} worker{'s' if world.workers > 1 else ''}, {options.consistency}: "
            f"test error {error:.1%}, at most {options.most:.0%} allowed"
        )
    assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"


if __name__ == "__main__":
    main()
