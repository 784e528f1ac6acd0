"""PyTorch's process groups over the backend `unisono`: without a launcher, under torchrun, and in trouble."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
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
    "halves",
    "bits",
    "as_gloo",
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
    "large",
    "any_source",
    "groups",
    "splits",
    "many_groups",
    "monitored",
    "timeouts",
    "mismatched",
    "aborted",
    "forked",
    "again",
]
GROUPS_ACROSS_HOSTS = [
    "messages",
    "large",
    "any_source",
    "groups",
    "splits",
    "monitored_across_hosts",
    "aborted",
    "forked",
    "again",
]
MODELS = [
    "replicated",
    "sharded",
    "sharded_in_shared_memory",
    "joined",
    "hooks",
    "optimizers",
    "unused",
    "checkpoints",
]
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


# The host of each rank: uneven, and not in the order of hosts.
@pytest.mark.parametrize("hosts", ["0111", "010"])
def test_collectives_across_hosts(run_spawned, hosts):
    run_spawned(len(hosts), "backend_collectives.py", *COLLECTIVES, HOSTS=hosts).check()


def test_groups_across_hosts(run_spawned):
    run_spawned(4, "backend_groups.py", *GROUPS_ACROSS_HOSTS, HOSTS="0011").check()


def test_models_across_hosts(run_spawned, tmp_path):
    parts = [part for part in MODELS if part != "sharded_in_shared_memory"]
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    run_spawned(3, "backend_models.py", *parts, UNISONO_HOSTS="2", CHECKPOINTS=str(folder)).check()
    run_spawned(3, "backend_groups.py", "unfinished", UNISONO_HOSTS="2").check()


def test_a_killed_rank_is_named_on_all_hosts(run_spawned):
    job = run_spawned(4, "backend_groups.py", "killed", HOSTS="0111")
    assert all(f"rank {rank} saw it" in job.output for rank in range(3)), job.output


@pytest.fixture
def namespaces():
    """Two network namespaces, and the name of the interface of each to a link between them."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("network namespaces need root, ip and unshare")
    names = [f"unisono-{os.getpid()}-{index}" for index in range(2)]
    links = [f"u{os.getpid()}-{index}" for index in range(2)]
    commands = [f"netns add {name}" for name in names]
    commands.append(f"link add {links[0]} netns {names[0]} type veth peer name {links[1]} netns {names[1]}")
    for index, (name, link) in enumerate(zip(names, links, strict=True)):
        commands += [f"-n {name} addr add 10.231.7.{index + 1}/24 dev {link}"]
        commands += [f"-n {name} link set {device} up" for device in ("lo", link)]
    try:
        for command in commands:
            made = subprocess.run(["ip", *command.split()], capture_output=True, text=True, timeout=60)
            if made.returncode != 0:
                pytest.skip(f"ip {command}: {made.stderr.strip()}")
        yield list(zip(names, links, strict=True))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)


def test_ranks_in_namespaces_of_their_own(namespaces):
    """As on two hosts: other addresses, other process ids, no shared memory between them."""
    program = Path(__file__).parent / "programs/backend_namespaces.py"
    parts = ["means", "moves", "bits", "messages", "large", "any_source", "groups"]
    fixed = {
        "MASTER_ADDR": "10.231.7.1",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "4",
        "PYTHONWARNINGS": "ignore",
    }
    shared = str(Path(__file__).parents[1] / "programs")
    path = os.pathsep.join([shared, *filter(None, [os.environ.get("PYTHONPATH")])])
    ranks = " & ".join(f"RANK=$(($1 + {rank})) $0 $2 {' '.join(parts)}" for rank in range(2))
    hosts = []
    for index, (name, interface) in enumerate(namespaces):
        apart = [
            "ip",
            "netns",
            "exec",
            name,
            "unshare",
            "--pid",
            "--ipc",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        script = ["bash", "-c", f"{ranks} & wait", sys.executable, str(2 * index), str(program)]
        hosts.append(
            subprocess.Popen(
                [*apart, *script],
                env={**os.environ, **fixed, "PYTHONPATH": path, "GLOO_SOCKET_IFNAME": interface},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [host.communicate(timeout=120)[0] for host in hosts]
    finally:
        [host.kill() for host in hosts]
    for rank in range(4):
        assert f"rank {rank} is done" in outputs[rank // 2], "\n".join(outputs)


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
