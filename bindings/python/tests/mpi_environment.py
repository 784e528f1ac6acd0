"""The virtual environments with an MPI that tests on several ranks use."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def mpi_environment(variable, default):
    """A virtual environment with an MPI: the one that a variable names, or the repository's."""
    folder = Path(os.environ.get(variable) or ROOT / default)
    if not (folder / "bin" / "mpiexec").exists():
        pytest.skip(f"no mpiexec in {folder}; let {variable} name an environment with one")
    return str(folder / "bin" / "mpiexec"), str(folder / "bin" / "python")
