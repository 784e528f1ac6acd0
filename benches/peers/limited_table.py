"""Adds Zipf-distributed ids to a key-value table with or without a limit; measures time, rows and memory.

    python benches/peers/limited_table.py
    python benches/peers/limited_table.py --max-rows 0

The limit is checked after every batch.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import unisono as uni


def resident() -> float:
    """GiB of this process's memory, shared memory included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 2**20


def main() -> None:
    """Prints the figures of one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--max-rows", type=int, default=5_000_000, help="0 for no limit")
    parser.add_argument("--eviction", default="lfu")
    parser.add_argument("--cols", type=int, default=16)
    parser.add_argument("--ids", type=float, default=1e9, help="how many different ids there are")
    parser.add_argument("--batches", type=int, default=100, help="of a million ids")
    arguments = parser.parse_args()

    uni.init()
    limit = {"max_rows": arguments.max_rows, "eviction": arguments.eviction} if arguments.max_rows else {}
    table = uni.KeyValueTable(arguments.cols, updater="adagrad", **limit)
    random, begin = np.random.default_rng(0), resident()
    delta = np.full((1_000_000, arguments.cols), 1e-3, dtype="float32")
    seconds, most_rows, most_memory = 0.0, 0, 0.0
    for _ in range(arguments.batches):
        # The logarithms of ids are evenly distributed: Zipf's law with the exponent 1.
        ids = ((arguments.ids + 1) ** random.random(len(delta))).astype("int64")
        start = time.perf_counter()
        table.add(ids, delta)
        seconds += time.perf_counter() - start
        most_rows, most_memory = max(most_rows, len(table)), max(most_memory, resident())
    assert not arguments.max_rows or most_rows <= arguments.max_rows
    frequent = table.contains(np.arange(1, 20_001)).mean()
    print(
        f"{arguments.batches * len(delta):,} ids in {seconds:.1f} s, at most {most_rows:,} rows, "
        f"{most_memory - begin:.2f} GiB; {frequent:.2%} of the 20,000 most frequent ids are in the table"
    )


if __name__ == "__main__":
    main()
