"""Assignment of devices to workers, on hosts with mock accelerators: `nvidia-smi` is a script of the test."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
import unisono as uni
{before}
name = uni.pick_device()
assert uni.pick_device() == name
variables = ["CUDA_VISIBLE_DEVICES", "THEANO_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
print(name, *(os.environ.get(one, "-") for one in variables))
"""
TWO = "GPU 0: NVIDIA X (UUID: GPU-aa)\nGPU 1: NVIDIA X (UUID: GPU-bb)\n"
SPLIT = TWO + "  MIG 1g.10gb     Device  0: (UUID: MIG-cc)\n  MIG 1g.10gb     Device  1: (UUID: MIG-dd)\n"
NOT_INHERITED = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "THEANO_FLAGS", "UNISONO_DEVICE"}


@pytest.fixture
def pick(tmp_path):
    """Runs the script as one rank of a host with the devices that `listing` names."""

    def run(listing, before="", status=0, **variables):
        program = tmp_path / "nvidia-smi"
        lines = "".join(f"echo '{line}'\n" for line in listing.splitlines())
        program.write_text(f"#!/bin/sh\n{lines}exit {0 if listing else 9}\n")
        program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(before=before)],
            env={**kept, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **variables},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == status, done.stderr
        return done.stdout.split(), done.stderr

    return run


def rank(number, size, first=0):
    """The variables of one rank under torchrun; those before `first` are on another host."""
    here = number - first, size - first
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return dict(zip(names, map(str, (number, size, *here)), strict=True))


@pytest.mark.parametrize("first", [0, 3])
def test_each_worker_gets_its_own_device(pick, first):
    for number in range(2):
        found, said = pick(TWO, **rank(first + number, first + 2, first))
        assert found == ["cuda", str(number), "device=cuda0", "-"]
        assert said == ""


def test_a_single_process_gets_the_first_device(pick):
    assert pick(TWO) == (["cuda", "0", "device=cuda0", "-"], "")


def test_after_init_the_world_determines_the_device(pick):
    assert pick(TWO, before="world = uni.init()")[0][:2] == ["cuda", "0"]


def test_more_workers_than_devices_share_them(pick):
    for number in range(5):
        found, said = pick(TWO, **rank(number, 5))
        assert found[1] == str(number % 2) and found[3] == "0.250"
        assert ("5 workers share 2 accelerators, up to 3 on each" in said) == (number == 0)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1", "1"), ("1,0", "0"), ("GPU-bb,GPU-aa", "GPU-aa"), ("1,-1,0", "1"), ("1,7", "1")],
)
def test_only_visible_devices_are_used(pick, limit, expected):
    found, _ = pick(TWO, CUDA_VISIBLE_DEVICES=limit, **rank(1, 2))
    assert found[:2] == ["cuda", expected]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_devices_mean_the_cpu(pick, hidden):
    found, said = pick(TWO, CUDA_VISIBLE_DEVICES=hidden)
    assert found[0] == "cpu" and "stay on the CPU" in said


def test_mig_instances_are_devices(pick):
    names = [pick(SPLIT, **rank(number, 3))[0][1] for number in range(3)]
    assert names == ["0", "MIG-cc", "MIG-dd"]


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has an accelerator")
def test_without_a_device_one_rank_reports_it_and_nothing_is_set(pick):
    for number in range(2):
        found, said = pick("", **rank(number, 2))
        assert found == ["cpu", "-", "-", "-"]
        assert said.count("\n") == (2 if number == 0 else 0)  # the script calls it twice


def test_existing_flags_are_kept(pick):
    assert pick(TWO, THEANO_FLAGS="floatX=float32")[0][2] == "floatX=float32,device=cuda0"
    assert pick(TWO, THEANO_FLAGS="device=cpu")[0][2] == "device=cpu"


def test_a_framework_that_was_already_imported_is_named(pick):
    before = "import sys, types; sys.modules['jax'] = types.ModuleType('jax')"
    found, said = pick(TWO, before=before)
    assert found[0] == "cuda"
    assert "jax was imported before" in said and "above `import jax`" in said


@pytest.mark.parametrize("started", [True, False])
def test_pytorch_is_late_only_after_initialising_cuda(pick, started):
    cuda = f"types.SimpleNamespace(is_initialized=lambda: {started})"
    before = f"import sys, types; sys.modules['torch'] = types.SimpleNamespace(cuda={cuda})"
    assert ("torch was imported before" in pick(TWO, before=before)[1]) == started


def test_a_launcher_without_a_local_rank_is_an_error(pick):
    _, said = pick(TWO, status=1, PMIX_RANK="0", PMIX_NAMESPACE="job")
    assert "call unisono.init() before" in said
    _, said = pick(TWO, status=1, PMI_RANK="0", PMI_SIZE="2")
    assert "call unisono.init() before" in said
    _, said = pick(TWO, status=1, RANK="first", WORLD_SIZE="2")
    assert "UsageError" in said and "a number in RANK" in said


def test_our_launcher_provides_the_local_rank(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from unisono import _native\nprint(_native.placement())\n")
    command = [sys.executable, "-m", "unisono", "run", "-n", "3", "--", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(f"({number}, 3)" in done.stdout for number in range(3)), done.stdout
