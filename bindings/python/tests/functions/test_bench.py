"""`unisono bench functions` runs, and its output can be parsed."""

import json
import subprocess
import sys

import pytest

SMALL = """
import json
from dataclasses import asdict
from unisono import functions
from unisono.bench import functions as bench
functions.fork(2)
figures = [bench.empty_call(0.01), bench.large_input(0.01, 1_000_000), bench.large_output(0.01, 100_000)]
functions.close()
figures.append(bench.training(1, 2, 1, 8))
bench.show(figures, 2)
print(json.dumps([asdict(one) for one in figures]))
"""


def test_every_figure_is_measured():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    *table, figures = done.stdout.splitlines()
    figures = json.loads(figures)
    assert len(figures) == 4 and len(table) == 6
    assert all(0 < one["minimum"] <= one["median"] for one in figures)
    assert [one["reference"] is None for one in figures] == [True, False, False, False]


def test_the_program_offers_the_benchmark():
    command = [sys.executable, "-m", "unisono", "bench", "functions", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "--workers" in done.stdout
