"""Runs the examples: the tour of every collective under each launcher, and tables with each consistency."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TOUR = str(ROOT / "examples/collectives/tour.py")
IRIS = str(ROOT / "experiments/iris.yaml")
CLICKS = str(ROOT / "examples/applications/ftrl.py")
REGRESSION = str(ROOT / "examples/tables/logistic_regression.py")
OPENMPI = ["--oversubscribe", "--bind-to", "none"]


def environment(name: str) -> Path:
    """Returns a virtual environment created by `make test`; skips the test if it is missing."""
    folder = os.environ.get(f"UNISONO_TEST_{name}", "")
    if not (Path(folder) / "bin/mpiexec").exists():
        pytest.skip(f"UNISONO_TEST_{name} does not name an environment with this MPI")
    return Path(folder)


def run(command: list[str], ranks: int, **variables: str) -> str:
    """Returns the output of the tour; fails if the tour failed."""
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, **variables}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{ranks} {'ranks' if ranks > 1 else 'rank'}, transport" in result.stdout
    stops = len(re.findall(r"^def \w+\(x\):$", Path(TOUR).read_text(), re.MULTILINE))
    assert stops > 10
    assert len(re.findall(r" right +[\d.]+", result.stdout)) == stops, result.stdout
    return result.stdout


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_our_launcher(ranks: int) -> None:
    """On 1 to 4 ranks, possibly more than there are cores."""
    run([sys.executable, "-m", "unisono", "run", "-n", str(ranks), "--", TOUR], ranks)


def test_no_launcher() -> None:
    """A world of one."""
    assert "transport alone" in run([sys.executable, TOUR], 1)


def test_torchrun() -> None:
    """The ranks of torchrun find each other."""
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", TOUR]
    assert "transport shm" in run(command, 2, OMP_NUM_THREADS="1")


@pytest.mark.parametrize("variables", [{}, {"UNISONO_TRANSPORT": "mpi"}, {"UNISONO_HOSTS": "2"}], ids=str)
@pytest.mark.parametrize(("name", "options"), [("MPICH", []), ("OPENMPI", OPENMPI)])
def test_mpi(name: str, options: list[str], variables: dict[str, str]) -> None:
    """Under mpiexec: shared memory by default, MPI if forced, both on simulated hosts."""
    folder = environment(name)
    command = [str(folder / "bin/mpiexec"), *options, "-n", "4", str(folder / "bin/python"), TOUR]
    expected = {"UNISONO_TRANSPORT": "transport mpi", "UNISONO_HOSTS": "transport shm+mpi"}
    assert expected.get(next(iter(variables), ""), "transport shm,") in run(command, 4, **variables)


def test_pmix_alone() -> None:
    """A launcher without the size: MPI is queried, and the ranks of a host share memory."""
    folder = environment("OPENMPI")
    options = ["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", "3"]
    output = run([str(folder / "bin/prterun"), *options, str(folder / "bin/python"), TOUR], 3)
    assert "transport shm+mpi" in output


@pytest.mark.parametrize("consistency", ["async", "ssp:3", "bsp"])
@pytest.mark.parametrize("workers", [1, 4])
def test_logistic_regression(workers: int, consistency: str) -> None:
    """The script itself checks its test error; one worker needs no launcher."""
    launcher = [] if workers == 1 else ["-m", "unisono", "run", "-n", str(workers), "--"]
    command = [sys.executable, *launcher, REGRESSION, "--consistency", consistency, "--epochs", "3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(re.findall(r"epoch \d: test error +[\d.]+%", result.stdout)) == 3, result.stdout
    assert f"{'4 workers' if workers == 4 else '1 worker'}, {consistency}: test error" in result.stdout


@pytest.mark.parametrize("workers", [1, 3])
def test_click_prediction(workers: int, tmp_path: Path) -> None:
    """Workers read a third of the samples each, learn the same model, and save it."""
    launcher = [] if workers == 1 else ["-m", "unisono", "run", "-n", str(workers), "--"]
    model = tmp_path / "model"
    options = ["--passes", "2", "--least", "0.7", "--save", str(model)]
    command = [sys.executable, *launcher, CLICKS, *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "100,000 samples in" in result.stdout, result.stdout
    (used,) = re.findall(r"weights that are not zero: ([\d,]+)", result.stdout)
    # L1 regularisation leaves most of the 260,000 features without a weight.
    assert 1000 < int(used.replace(",", "")) < 130_000, result.stdout
    assert model.is_dir()


def test_click_prediction_names_a_damaged_line(tmp_path: Path) -> None:
    """The program ends with the line's number."""
    path = tmp_path / "clicks.txt"
    path.write_text("1 3:1\n0 4:x\n")
    result = subprocess.run([sys.executable, CLICKS, str(path)], capture_output=True, text=True, timeout=900)
    assert result.returncode == 1
    assert f'a finite number as value, received "x" ({path}:2)' in result.stderr, result.stderr


def trained(launcher: list[str], out: Path, mode: str = "data", **variables: str) -> bytes:
    """Returns the last weights of a short experiment: the same bits on any number of processes."""
    changes = ["--set", "epochs=2", "--set", "deterministic=true", "--mode", mode, "--out", str(out)]
    command = [*launcher, sys.executable, "-m", "unisono", "train", IRIS, *changes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    # Only one process prints.
    assert result.stderr.count("epoch 2 full") == 1, result.stderr
    return (out / "checkpoints/epoch-000002.safetensors").read_bytes()


def test_experiment_under_torchrun(tmp_path: Path) -> None:
    """`torchrun --no-python unisono train`: its processes train one model; a wrong grid ends them all."""
    pytest.importorskip("torch")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    torchrun.append("--no-python")
    assert trained(torchrun, tmp_path / "four", "vector") == trained([], tmp_path / "one")
    command = [*torchrun, sys.executable, "-m", "unisono", "train", IRIS, "--grid", "data=3"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=tmp_path)
    assert result.returncode != 0
    assert result.stderr.count("unisono: --grid data=3") == 1, result.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("name", "options"), [("MPICH", []), ("OPENMPI", OPENMPI)])
@pytest.mark.parametrize("variables", [{}, {"UNISONO_TRANSPORT": "mpi"}], ids=str)
def test_experiment_under_mpi(
    tmp_path: Path, name: str, options: list[str], variables: dict[str, str]
) -> None:
    """`mpiexec unisono train`: through shared memory, and through MPI if forced."""
    mpiexec = [str(environment(name) / "bin/mpiexec"), *options, "-n", "3"]
    assert trained(mpiexec, tmp_path / "three", **variables) == trained([], tmp_path / "one")
