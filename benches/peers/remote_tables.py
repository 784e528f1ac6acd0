"""Measures gets and adds of tables on another host in turns with MPI sends of the same bytes.

The hosts are namespaces of this machine (scripts/cluster.py), connected by a virtual link. A worker on the
first uses tables whose rows are on the second; the reference is a send and a receive of the bytes that must
move, through mpi4py, in the same processes. Results are checked.

    .venv/bin/python benches/peers/remote_tables.py
    .venv/bin/python benches/peers/remote_tables.py --shared     # both hosts hold half of each table
    .venv/bin/python benches/peers/remote_tables.py --mpi openmpi --cases get,add --seconds 10
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cluster_job import ENVIRONMENTS, run_ranks

ELEMENTS = 25_000_000
ROWS, COLS, LISTED = 1_000_000, 50, 100_000
LISTS = 8
WORKER, SERVER = 0, 1
DONE = 7


class Cases:
    """The tables and arrays of one rank, and the calls that it measures."""

    def __init__(self, uni: Any, worker: bool) -> None:
        """Creates the tables; collective."""
        self.uni, self.worker = uni, worker
        self.array = uni.ArrayTable(ELEMENTS, name="array")
        self.matrix = uni.MatrixTable(ROWS, COLS, name="matrix")
        order = np.random.default_rng(1).permutation(ROWS)
        self.lists = [np.ascontiguousarray(order[LISTED * i :][:LISTED]) for i in range(LISTS)]
        self.all = np.ones(ELEMENTS if worker else 0, np.float32)
        self.listed = np.ones((LISTED if worker else 0, COLS), np.float32)
        self.ones = self.all.copy(), self.listed.copy()
        self.calls = 0
        self.adds = {"array": 0, **dict.fromkeys(range(LISTS), 0)}
        self.cases: dict[str, tuple[Callable, Callable, int]] = {
            "get": (self._get, self._check_get, 4 * ELEMENTS),
            "add": (lambda: self._add(wait=True), self._check_add, 4 * ELEMENTS),
            "add and flush": (lambda: self._add(wait=False), self._check_add, 4 * ELEMENTS),
            "row get": (self._get_rows, self._check_rows, 4 * LISTED * COLS),
            "row add": (lambda: self._add_rows(wait=True), self._check_add_rows, 4 * LISTED * COLS),
            "row add and flush": (
                lambda: self._add_rows(wait=False),
                self._check_add_rows,
                4 * LISTED * COLS,
            ),
        }

    def prepare(self) -> None:
        """Before each call: other rows than before, and arrays without results of earlier calls."""
        self.calls += 1
        self.list = self.calls % LISTS
        self.all.fill(-1)
        self.listed.fill(-1)

    def _get(self) -> None:
        self.array.get(out=self.all)

    def _check_get(self) -> bool:
        return bool((self.all == self.adds["array"]).all())

    def _add(self, wait: bool) -> None:
        self.array.add(self.ones[0], wait=wait)
        if not wait:
            self.uni.flush()
        self.adds["array"] += 1

    def _check_add(self) -> bool:
        self._get()
        return self._check_get()

    def _get_rows(self) -> None:
        self.matrix.get(self.lists[self.list], out=self.listed)

    def _check_rows(self) -> bool:
        return bool((self.listed == self.adds[self.list]).all())

    def _add_rows(self, wait: bool) -> None:
        self.matrix.add(self.ones[1], self.lists[self.list], wait=wait)
        if not wait:
            self.uni.flush()
        self.adds[self.list] += 1

    def _check_add_rows(self) -> bool:
        self._get_rows()
        return self._check_rows()


def await_message(communicator: Any) -> None:
    """Waits for the worker without occupying the core that the server's thread needs."""
    while not communicator.Iprobe(WORKER, DONE):
        time.sleep(0.002)
    communicator.recv(source=WORKER, tag=DONE)


def work(arguments: argparse.Namespace) -> None:
    """One rank: measures all cases in turns; rank 0 prints them as JSON."""
    from mpi4py import MPI  # first: the world uses the MPI that the process has loaded

    communicator = MPI.COMM_WORLD
    rank = communicator.rank
    import unisono as uni

    role = "both" if arguments.shared else ("worker" if rank == WORKER else "server")
    uni.init(timeout=120, role=role)
    cases = Cases(uni, rank == WORKER)
    found = []
    for name, (call, check, moved) in cases.cases.items():
        if arguments.cases and name not in arguments.cases:
            continue
        bytes_moved = moved // 2 if arguments.shared else moved
        raw = np.full(bytes_moved, rank, np.uint8)
        sends = WORKER if "add" in name else SERVER
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        end = time.monotonic() + arguments.seconds
        # The first repetition warms up: connections, and pages that were never touched.
        repetition = -1
        while communicator.bcast(repetition < 4 or time.monotonic() < end, WORKER):
            cases.prepare()
            communicator.Barrier()
            if rank == WORKER:
                started = time.perf_counter()
                call()
                elapsed = time.perf_counter() - started
                assert check(), f"{name} is wrong"
                communicator.send(None, SERVER, DONE)
            else:
                elapsed = 0.0
                await_message(communicator)
            if repetition >= 0:
                times["ours"].append(elapsed)
            raw.fill(rank + 1)
            communicator.Barrier()
            started = time.perf_counter()
            if rank == sends:
                communicator.Send(raw, 1 - rank)
            else:
                communicator.Recv(raw, sends)
            elapsed = communicator.allreduce(time.perf_counter() - started, MPI.MAX)
            if repetition >= 0:
                times["theirs"].append(elapsed)
            assert (raw == sends + 1).all(), "MPI's message is wrong"
            repetition += 1
        found.append({"case": name, "bytes": bytes_moved, **times})
    communicator.Barrier()
    if rank == WORKER:
        print(json.dumps(found), flush=True)


def main() -> int:
    """Starts the hosts and a job on them, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mpi", choices=ENVIRONMENTS, default="mpich")
    parser.add_argument("--shared", action="store_true", help="both hosts hold half of each table")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=[])
    parser.add_argument("--seconds", type=float, default=3.0, help="per case")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        work(arguments)
        return 0
    found = run_ranks(__file__, arguments.mpi, 2, 1)
    print(f"{arguments.mpi}, a worker and tables on another host; milliseconds, minimum / median")
    for one in found:
        figures = [(min(one[name]) * 1e3, statistics.median(one[name]) * 1e3) for name in ("ours", "theirs")]
        ratios = [theirs / ours for ours, theirs in zip(*figures, strict=True)]
        text = [f"{low:8.2f} / {middle:8.2f}" for low, middle in figures]
        print(
            f"{one['case']:18} {one['bytes'] / 1e6:6g} MB  ours {text[0]}  MPI {text[1]}  "
            f"MPI ÷ ours {ratios[0]:.2f} / {ratios[1]:.2f}  ({len(one['ours'])} times)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
