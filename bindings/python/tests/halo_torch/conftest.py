"""One thread for each rank, because ranks are threads on few cores; the same random numbers in every run."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
collect_ignore = ["programs"]
PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """One thread in this process, and in each rank that it starts."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def same_numbers():
    """Makes draws from the default generator the same in every run."""
    torch.manual_seed(0)


@pytest.fixture
def run_program(run_ranks):
    """Runs a program of `halo_torch/programs` on some ranks."""

    def run(ranks, program, *arguments, deadline=600.0, **options):
        return run_ranks(ranks, str(PROGRAMS / program), *arguments, deadline=deadline, **options)

    return run
