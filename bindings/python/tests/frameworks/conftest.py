"""Frameworks on few cores: one thread for each rank, so that ranks do not compete for cores."""

import os
from pathlib import Path

import pytest

collect_ignore = ["programs"]
PROGRAMS = Path(__file__).parent / "programs"
SHARED = Path(__file__).parents[1] / "programs"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """The environment of the ranks."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")


@pytest.fixture
def run_framework(run_ranks):
    """Runs a program of `frameworks/programs` on some ranks; importing a framework takes seconds.

    Modules that programs of all folders share are in `tests/programs`.
    """
    path = os.pathsep.join([str(SHARED), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(ranks, program, *arguments, deadline=600.0, **options):
        options = {"PYTHONPATH": path, **options}
        return run_ranks(ranks, str(PROGRAMS / program), *arguments, deadline=deadline, **options)

    return run
