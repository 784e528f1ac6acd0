"""Ranks are threads on few cores: one thread each, or they hold each other up."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
collect_ignore = ["programs"]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """What this process computes with, and the ranks that it starts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run_program(run_ranks):
    """Runs a program of `halo_torch/programs` on some ranks."""

    def run(ranks, program, *arguments, deadline=600.0, **options):
        return run_ranks(ranks, str(PROGRAMS / program), *arguments, deadline=deadline, **options)

    return run
