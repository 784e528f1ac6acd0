"""Measures an add of rows with many repeats in turns with NumPy, which sums them first.

The ids are those of a batch of a recommender, Zipf-distributed over the rows of the table.
Results are checked.

    python benches/peers/repeated_rows.py
    python benches/peers/repeated_rows.py --updater adam --rows 100000 --rounds 20
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import unisono as uni


def zipf_ids(rows: int, count: int, exponent: float) -> np.ndarray:
    """Ids of rows, of which few are frequent; the frequent ones are anywhere in the table."""
    random = np.random.default_rng(0)
    weights = np.arange(1, rows + 1, dtype="float64") ** -exponent
    drawn = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(count))
    return random.permutation(rows)[np.minimum(drawn, rows - 1)]


def summed(ids: np.ndarray, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids and the sums of their rows, by NumPy."""
    distinct, numbers = np.unique(ids, return_inverse=True)
    sums = np.zeros((len(distinct), delta.shape[1]), dtype=delta.dtype)
    np.add.at(sums, numbers, delta)
    return distinct, sums


def main() -> None:
    """Prints the minimum and the median of each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cols", type=int, default=16)
    parser.add_argument("--ids", type=int, default=1_270_000)
    parser.add_argument("--exponent", type=float, default=1.05, help="of the Zipf distribution")
    parser.add_argument("--updater", default="adagrad")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()

    uni.init()
    rows, cols = arguments.rows, arguments.cols
    ids = zipf_ids(rows, arguments.ids, arguments.exponent)
    delta = np.random.default_rng(1).standard_normal((len(ids), cols)).astype("float32")
    distinct, _ = summed(ids, delta)
    print(f"{len(ids)} ids, {len(distinct)} distinct, of {rows} rows of {cols} columns, {arguments.updater}")

    ours = uni.MatrixTable(rows, cols, updater=arguments.updater)
    by_numpy = uni.MatrixTable(rows, cols, updater=arguments.updater)
    keys = uni.KeyValueTable(cols, updater=arguments.updater)
    out = np.empty_like(delta)
    cases = {
        "np.unique, np.add.at": lambda: summed(ids, delta),
        "the same and an add of the sums": lambda: by_numpy.add(*summed(ids, delta)[::-1], wait=True),
        "add, repeats summed": lambda: ours.add(delta, ids, wait=True),
        "add of keys, repeats summed": lambda: keys.add(ids, delta, wait=True),
        "get with repeats": lambda: ours.get(ids, out),
        "get of as many distinct rows": lambda: ours.get(spread, out),
    }
    spread = np.resize(np.random.default_rng(2).permutation(rows), len(ids))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(arguments.rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            times[name].append(1000 * (time.perf_counter() - start))
    for name, taken in times.items():
        print(f"{name:35} {min(taken):8.1f} ms {statistics.median(taken):8.1f} ms")
    assert np.array_equal(ours.get(distinct), by_numpy.get(distinct))
    assert np.array_equal(ours.get(distinct), keys.get(distinct))
    uni.shutdown()


if __name__ == "__main__":
    main()
