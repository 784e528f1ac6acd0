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

from unisono.torch.distributed.versions import OLDEST, OLDEST_WITH_BACKENDS, version  # noqa: E402

if version() < OLDEST:
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
    "interrupted",
    "threads",
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
    "buckets",
    "joined",
    "hooks",
    "optimizers",
    "unused",
    "checkpoints",
]
PARALLEL = ["dtensors", "tensor_parallel", "sharded_options", "hybrid", "pipeline", "functions"]
if version() < (2, 11):  # the oldest one in which these were run on CPUs
    MODELS = [part for part in MODELS if part in ("replicated", "joined", "hooks", "optimizers", "unused")]
    PARALLEL = ["dtensors", "functions"]


PYTHON_ONLY = {"UNISONO_TORCH_NATIVE": "0"}


@pytest.fixture(scope="module")
def with_native_part(tmp_path_factory):
    """The environment of programs that use the C++ part; it is built once."""
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        pytest.skip("no C++ compiler here")
    if version() < OLDEST_WITH_BACKENDS:
        pytest.skip(f"no C++ part for PyTorch {torch.__version__}")
    environment = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("native"))}
    build = [sys.executable, "-m", "unisono.torch.distributed.native"]
    subprocess.run(build, check=True, timeout=600, env={**os.environ, **environment})
    return environment


@pytest.fixture(params=["python", "native"])
def part(request):
    """The environment of programs without or with the C++ part."""
    return PYTHON_ONLY if request.param == "python" else request.getfixturevalue("with_native_part")


def each_with(*cases):
    """Numbers of ranks, each with one of the parts: all numbers with both would take twice the time."""
    return pytest.mark.parametrize(("ranks", "part"), cases, indirect=["part"])


@pytest.fixture
def run_spawned(run_framework):
    """Runs a program that starts its ranks itself."""

    def run(ranks, program, *parts, part=PYTHON_ONLY, **options):
        options = {"PYTHONWARNINGS": "ignore", **part, **options}
        return run_framework(1, program, str(ranks), *parts, launcher="none", **options)

    return run


@each_with((1, "python"), (2, "native"), (3, "python"), (4, "native"))
def test_collectives(run_spawned, ranks, part):
    run_spawned(ranks, "backend_collectives.py", *COLLECTIVES, part=part).check()


@each_with((1, "native"), (2, "python"), (4, "native"))
def test_groups(run_spawned, ranks, part):
    run_spawned(ranks, "backend_groups.py", *GROUPS, part=part).check()


@pytest.fixture(scope="module")
def checkpoint_folder(tmp_path_factory):
    """Checkpoints of all numbers of ranks: each number loads those of the numbers before it."""
    return str(tmp_path_factory.mktemp("checkpoints"))


@each_with((3, "native"), (1, "python"), (2, "python"))
def test_models(run_spawned, ranks, part, checkpoint_folder):
    run_spawned(ranks, "backend_models.py", *MODELS, part=part, CHECKPOINTS=checkpoint_folder).check()


@each_with((2, "python"), (4, "native"))
def test_parallel_models(run_spawned, ranks, part):
    run_spawned(ranks, "backend_parallel.py", *PARALLEL, part=part).check()


def test_every_call_is_compared_in_debug_mode(run_spawned, part):
    parts = ["means", "views", "asynchronous", "objects"]
    run_spawned(2, "backend_collectives.py", *parts, part=part, TORCH_DISTRIBUTED_DEBUG="DETAIL").check()
    run_spawned(2, "backend_models.py", "replicated", part=part, TORCH_DISTRIBUTED_DEBUG="DETAIL").check()


def test_a_killed_rank_is_named_within_two_seconds(run_spawned, part):
    job = run_spawned(3, "backend_groups.py", "killed", part=part)
    assert job.status != 0
    assert "rank 0 saw it" in job.output and "rank 1 saw it" in job.output, job.output


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="PyTorch is too old to shrink groups")
@pytest.mark.parametrize(("part", "hosts"), [("native", ""), ("python", "0011")], indirect=["part"])
def test_a_group_goes_on_without_a_killed_rank(run_spawned, part, hosts):
    job = run_spawned(4, "backend_groups.py", "shrunk", part=part, HOSTS=hosts)
    assert all(f"rank {rank} of 3 went on" in job.output for rank in range(3)), job.output


def test_a_program_may_end_without_destroying_its_groups(run_spawned):
    run_spawned(3, "backend_groups.py", "unfinished").check()


@pytest.mark.parametrize("launcher", ["torchrun", "unisono"])
def test_launchers(run_framework, launcher):
    run_framework(2, "backend_launched.py", launcher=launcher).check()


@pytest.mark.parametrize(
    ("library", "ranks", "launcher"),
    [("accelerate", 2, "torchrun"), ("lightning", 1, "none")],
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


@pytest.mark.skipif(
    version() < OLDEST_WITH_BACKENDS, reason="older versions have one backend for all devices"
)
@pytest.mark.parametrize("backend", ["cpu:unisono,cuda:gloo", "cpu:gloo,cuda:unisono"])
def test_one_backend_for_each_type_of_device(run_spawned, backend):
    run_spawned(2, "backend_groups.py", "mixed", BACKEND=backend).check()


def test_an_old_version_of_pytorch_is_named(monkeypatch):
    from unisono.torch import distributed

    monkeypatch.setattr(torch, "__version__", "2.7.1+cpu")
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.8 or newer, and this is 2\.7\.1"):
        distributed.register()
    distributed.register_in_older_versions()  # programs that do not use it can import unisono.torch


def test_older_versions_are_told_the_name(monkeypatch):
    from unisono.torch import distributed

    monkeypatch.setattr(dist.Backend, "_plugins", {})
    register = []
    monkeypatch.setattr(dist.Backend, "register_backend", lambda name, *_, **__: register.append(name))
    distributed.register_in_older_versions()
    assert register == ([] if version() >= OLDEST_WITH_BACKENDS else ["unisono"])
    monkeypatch.setattr(torch, "__version__", "2.8.0+cu128")
    distributed.register_in_older_versions()
    assert "unisono" in register


# Before version 2.14, the backend takes the place of the process group.
def test_the_process_groups_of_older_versions(run_spawned):
    options = {"UNISONO_TORCH_GROUP": "1", "TORCH_FR_BUFFER_SIZE": "0"}  # not for such groups
    run_spawned(2, "backend_collectives.py", *COLLECTIVES, **options).check()
    run_spawned(2, "backend_groups.py", *GROUPS, "combined", **options).check()
    run_spawned(2, "backend_models.py", "replicated", "sharded", **options).check()
    run_spawned(2, "backend_parallel.py", "dtensors", "functions", **options).check()


def test_the_native_part_names_an_old_version_of_pytorch(monkeypatch):
    from unisono.torch.distributed import native

    monkeypatch.setattr(torch, "__version__", "2.11.0")
    with pytest.raises(RuntimeError, match=r"needs PyTorch 2\.14 or newer, and this is 2\.11\.0"):
        native.build()


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
    run_suite("unisono", SUITE, **PYTHON_ONLY)


def test_a_part_of_pytorchs_own_tests_with_the_native_part(with_native_part):
    run_suite("unisono as gloo", [*SUITE, *SUITE_AS_GLOO], **with_native_part)
