"""Predicts clicks with logistic regression on sparse features, trained by FTRL-proximal.

    python examples/applications/ftrl.py
    unisono run -n 4 -- examples/applications/ftrl.py train.txt --format criteo --test test.txt --save model

Each worker reads its own part of the file; the weights are in a table that all share. The rule is that of
McMahan and others 2013, "Ad click prediction: a view from the trenches". Without a file, it generates one.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from clicks import Generated, area_under_curve

import unisono as uni
from unisono.samples import SparseBatch, read_criteo, read_libsvm

# Generated ids of each category.
ROWS = 10_000

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("data", type=Path, nargs="?", help="the training samples")
parser.add_argument(
    "--test", type=Path, help="samples to evaluate the model on; by default the training samples"
)
parser.add_argument("--format", choices=["libsvm", "criteo"], default="libsvm")
parser.add_argument("--hash-bits", type=int, default=20, help="the table has 2**BITS weights")
parser.add_argument("--passes", type=int, default=1)
parser.add_argument("--batch", type=int, default=1024, help="samples between two updates of a worker")
parser.add_argument("--alpha", type=float, default=0.1, help="the learning rate")
parser.add_argument("--beta", type=float, default=1.0)
parser.add_argument("--l1", type=float, default=1.0, help="keeps weights of rare features at zero")
parser.add_argument("--l2", type=float, default=1.0)
parser.add_argument("--save", help="a folder for the table")
parser.add_argument("--least", type=float, default=0.0, help="the area under the curve that must be reached")


def write_generated(path: Path, batch: int, count: int) -> None:
    """Writes generated samples in LIBSVM's format: numbers, and an id with the value 1 for each category."""
    numbers, ids, clicked = Generated(ROWS).samples(batch, count)
    ids = ids + ROWS * np.arange(ids.shape[1]) + numbers.shape[1]
    with path.open("w") as file:
        for label, values, row in zip(clicked, numbers, ids, strict=True):
            features = [f"{at}:{value:.4g}" for at, value in enumerate(values)]
            print(f"{label:.0f}", *features, *(f"{one}:1" for one in row), file=file)


def scores(batch: SparseBatch, weights: np.ndarray) -> np.ndarray:
    """The logarithm of the odds of a click for each sample, given the weight of each feature."""
    return np.bincount(batch.samples, weights * batch.values, len(batch.labels))


def main() -> None:
    """Trains, evaluates and saves the model."""
    options = parser.parse_args()
    world = uni.init()
    with TemporaryDirectory() as folder:
        if options.data is None:
            options.data, options.test = Path(folder) / "train.txt", Path(folder) / "test.txt"
            write_generated(options.data, 0, 50_000)
            write_generated(options.test, 1, 10_000)
        train(options, world)


def train(options: argparse.Namespace, world: uni.World) -> None:
    """Trains and evaluates with the options of the command line."""
    read = read_criteo if options.format == "criteo" else read_libsvm

    def batches(path: Path):
        part = {"part": world.worker_id, "parts": world.workers}
        return read(path, options.batch, hash_bits=options.hash_bits, **part)

    rule = {"alpha": options.alpha, "beta": options.beta, "lambda1": options.l1, "lambda2": options.l2}
    table = uni.MatrixTable(2**options.hash_bits, 1, updater="ftrl", name="weights", **rule)
    shows = world.rank == 0 and sys.stderr.isatty()
    began, count = time.perf_counter(), 0
    for number in range(options.passes):
        reader = batches(options.data)
        for batch in reader:
            odds = scores(batch, table.get(batch.ids)[:, 0])
            errors = (1 / (1 + np.exp(-odds))).astype(np.float32) - batch.labels
            # An id may occur in several samples of a batch: the table adds its gradients up.
            table.add((errors[batch.samples] * batch.values)[:, None], batch.ids)
            count += len(batch.labels)
            if shows:
                print(f"\rpass {number + 1}: {reader.progress:.0%}", end="", file=sys.stderr, flush=True)
    uni.barrier()
    seconds = time.perf_counter() - began
    count = int(uni.all_reduce(np.array([count]))[0])

    predicted, labels = [np.zeros(0)], [np.zeros(0)]
    for batch in batches(options.test or options.data):
        predicted.append(scores(batch, table.get(batch.ids)[:, 0]))
        labels.append(batch.labels)
    every = [uni.gather(np.concatenate(one), varied=True) for one in (predicted, labels)]
    if options.save:
        uni.save(options.save)
    if world.rank == 0:
        area = area_under_curve(*every)
        used = np.count_nonzero(table.get())
        print(
            f"{count:,} samples in {seconds:.1f} s, {count / seconds:,.0f} samples/s, {world.workers} workers"
        )
        print(f"area under the curve: {area:.4f}, weights that are not zero: {used:,}")
        assert area >= options.least, f"an area of {area:.4f} is less than {options.least}"


if __name__ == "__main__":
    main()
