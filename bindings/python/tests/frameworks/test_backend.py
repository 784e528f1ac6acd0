"""PyTorch's process groups over the backend `unisono`: without a launcher, under torchrun, and in trouble."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
dist = pytest.importorskip("torch.distributed", reason="this build of PyTorch has no process groups")

from unisono.torch.distributed import OLDEST  # noqa: E402

if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
    pytest.skip(f"PyTorch {torch.__version__} is older than {OLDEST}", allow_module_level=True)

COLLECTIVES = [
    "reductions",
    "means",
    "moves",
    "exchanges",
    "views",
    "asynchronous",
    "coalesced",
    "objects",
    "sparse",
    "rejected",
]
GROUPS = [
    "messages",
    "any_source",
    "groups",
    "splits",
    "many_groups",
    "monitored",
    "timeouts",
    "aborted",
    "forked",
    "again",
]
MODELS = ["replicated", "sharded", "joined", "hooks", "optimizers", "unused", "checkpoints"]
PARALLEL = ["dtensors", "tensor_parallel", "sharded_options", "hybrid", "pipeline", "functions"]


@pytest.fixture
def run_spawned(run_framework):
    """Runs a program that starts its ranks itself."""

    def run(ranks, program, *parts, **options):
        options = {"PYTHONWARNINGS": "ignore", **options}
        return run_framework(1, program, str(ranks), *parts, launcher="none", **options)

    return run


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_collectives(run_spawned, ranks):
    run_spawned(ranks, "backend_collectives.py", *COLLECTIVES).check()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_groups(run_spawned, ranks):
    run_spawned(ranks, "backend_groups.py", *GROUPS).check()


@pytest.fixture(scope="module")
def checkpoint_folder(tmp_path_factory):
    """Checkpoints of all numbers of ranks: each number loads those of the numbers before it."""
    return str(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("ranks", [3, 1, 2])
def test_models(run_spawned, ranks, checkpoint_folder):
    run_spawned(ranks, "backend_models.py", *MODELS, CHECKPOINTS=checkpoint_folder).check()


@pytest.mark.parametrize("ranks", [2, 4])
def test_parallel_models(run_spawned, ranks):
    run_spawned(ranks, "backend_parallel.py", *PARALLEL).check()


def test_every_call_is_compared_in_debug_mode(run_spawned):
    parts = ["means", "views", "asynchronous", "objects"]
    run_spawned(2, "backend_collectives.py", *parts, TORCH_DISTRIBUTED_DEBUG="DETAIL").check()
    run_spawned(2, "backend_models.py", "replicated", TORCH_DISTRIBUTED_DEBUG="DETAIL").check()


def test_a_killed_rank_is_named_within_two_seconds(run_spawned):
    job = run_spawned(3, "backend_groups.py", "killed")
    assert job.status != 0
    assert "rank 0 saw it" in job.output and "rank 1 saw it" in job.output, job.output


def test_a_program_may_end_without_destroying_its_groups(run_spawned):
    run_spawned(3, "backend_groups.py", "unfinished").check()


@pytest.mark.parametrize("launcher", ["torchrun", "unisono"])
def test_launchers(run_framework, launcher):
    run_framework(2, "backend_launched.py", launcher=launcher).check()


@pytest.mark.parametrize(
    ("library", "ranks", "launcher"),
    [("accelerate", 2, "torchrun"), ("accelerate", 4, "torchrun"), ("lightning", 1, "none")],
)
def test_the_scripts_of_the_guide(run_framework, tmp_path, monkeypatch, library, ranks, launcher):
    """Lightning starts its ranks by itself, and writes checkpoints to the working directory."""
    if importlib.util.find_spec(library) is None:  # importing it takes seconds
        pytest.skip(f"no {library} here: pip install {library}")
    page = (Path(__file__).parents[4] / "docs/guide/torch-distributed.md").read_text()
    block = re.search(rf"^```python {library}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = tmp_path / f"{library}_script.py"
    script.write_text(block.group(1))
    monkeypatch.chdir(tmp_path)
    run_framework(ranks, str(script), launcher=launcher).check()


def test_a_killed_rank_is_started_again_by_torchrun(tmp_path):
    program = Path(__file__).parent / "programs/backend_restarted.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", "1", str(program), str(tmp_path / "saved")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ranks_on_several_hosts_are_rejected_alike(monkeypatch):
    """Every rank learns which ranks cannot share memory with the first, at once."""
    from unisono.torch.distributed import rendezvous

    monkeypatch.setattr(rendezvous, "_host", lambda: threading.current_thread().name[:6])
    store, errors = dist.HashStore(), {}

    def join(rank):
        try:
            rendezvous.join(store, rank, 3, timedelta(seconds=30))
        except dist.DistBackendError as error:
            errors[rank] = str(error)

    ranks = [threading.Thread(target=join, args=(rank,), name=f"host {rank // 2}") for rank in range(3)]
    [thread.start() for thread in ranks]
    [thread.join(60) for thread in ranks]
    assert len(errors) == 3, errors
    assert all("received ranks [2] on another host" in text and "gloo" in text for text in errors.values()), (
        errors
    )


def test_an_old_version_of_pytorch_is_named(monkeypatch):
    from unisono.torch import distributed

    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.14 or newer, and this is 2\.6\.0"):
        distributed.register()


SUITE = [
    "test_DistributedDataParallelCPU",
    "test_all_gather",
    "test_all_gather_coalesced_full_group",
    "test_all_reduce_full_group_max",
    "test_all_reduce_sum_async",
    "test_barrier_full_group",
    "test_broadcast",
    "test_gather_full_group",
    "test_reduce_sum_twice",
    "test_scatter",
    "test_send_recv_with_tag",
    "test_static_graph_api_cpu",
]
# These ask for Gloo by its name, or need the C++ part.
SUITE_AS_GLOO = [
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_sum",
    "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo_tags",
    "test_get_future",
    "test_irecv",
    "test_isend_torch_profiler",
    "test_monitored_barrier_gloo_subgroup",
    "test_scatter_object_list",
    "test_send_recv_any_source_torch_profiler",
    "test_sparse_all_reduce_sum",
]


def run_suite(mode, tests, **environment):
    """`make test-torch` runs all of PyTorch's tests."""
    pytest.importorskip("expecttest", reason="PyTorch's tests need it: pip install expecttest")
    script = Path(__file__).parents[4] / "scripts/test_torch.py"
    command = [sys.executable, str(script), *tests, "--modes", mode]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)
    assert f"{len(tests)} passed, 0 skipped, 0 failed" in result.stdout, (
        result.stdout[-6000:] + result.stderr[-2000:]
    )


def test_a_part_of_pytorchs_own_tests():
    run_suite("unisono", SUITE, UNISONO_TORCH_NATIVE="0")


def test_a_part_of_pytorchs_own_tests_with_the_native_part(tmp_path):
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("no C++ compiler here")
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    build = [sys.executable, "-m", "unisono.torch.distributed.native"]
    subprocess.run(build, check=True, timeout=600, env={**os.environ, **cache})
    run_suite("unisono as gloo", [*SUITE, *SUITE_AS_GLOO], **cache)
