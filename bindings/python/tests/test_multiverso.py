"""The package multiverso: its own test suite, under every launcher, and what it rejects."""

import subprocess
import sys

import numpy as np
import pytest

import multiverso as mv
import unisono as uni
from multiverso.utils import convert_data


@pytest.fixture(autouse=True)
def fresh_session(fresh_world):
    yield
    mv.shutdown()


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("launcher", ["unisono", "mpich", "openmpi"])
def test_multiversos_own_tests(run_ranks, launcher, ranks):
    job = run_ranks(ranks, "multiverso_suite.py", str(ranks), launcher=launcher).check()
    assert len(job.notes) == ranks


def test_multiversos_own_tests_without_a_launcher(run_ranks):
    run_ranks(1, "multiverso_suite.py", "1", launcher="none").check()


def test_importing_it_prints_nothing():
    script = "import multiverso, multiverso.api, multiverso.tables, multiverso.utils"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_init_and_shutdown_can_be_repeated():
    for number in range(3):
        mv.init(sync=bool(number % 2))
        table = mv.ArrayTableHandler(2, init_value=[number, 0])
        assert table.get().tolist() == [number, 0]
        mv.shutdown()
        mv.shutdown()
        with pytest.raises(uni.UsageError, match="after it"):
            table.get()
        with pytest.raises(uni.UsageError, match="after it"):
            table.add([1, 1])


def test_shutdown_ends_only_its_own_session():
    world = uni.init()
    own = uni.ArrayTable(2, "int64", name="own")
    own.add([1, 2], wait=True)
    for number in range(2):
        mv.init(sync=True)
        table = mv.ArrayTableHandler(2)
        table.add([1, 1])
        mv.shutdown()
        with pytest.raises(uni.UsageError, match="after it"):
            table.get()
        own.add([1, 1], wait=True)
        assert own.get().tolist() == [2 + number, 3 + number]
    assert uni.world() is world
    second = uni.MatrixTable(2, 2, name="second")
    uni.barrier()
    assert (second.get() == 0).all()


def test_an_ended_session_does_not_block_the_others(run_ranks):
    run_ranks(3, "multiverso_within.py").check()


@pytest.mark.parametrize(
    "call", [mv.barrier, mv.workers_num, mv.worker_id, mv.server_id, mv.is_master_worker]
)
def test_nothing_works_before_init(call):
    with pytest.raises(uni.UsageError, match=r"multiverso.init\(\) first"):
        call()


def test_flags():
    mv.init(updater_type="sgd", omp_threads=4, ps_role="default")
    table = mv.MatrixTableHandler(2, 2)
    table.add(np.ones(4), sync=True)
    assert (table.get() == -1).all()
    mv.shutdown()
    with pytest.raises(uni.UsageError, match="updater_typ"):
        mv.init(updater_typ="sgd")
    with pytest.raises(uni.UsageError, match="percent"):
        mv.init(sync=True, backup_worker_ratio=100)


def test_each_occurrence_of_a_row_is_a_step():
    mv.init(updater_type="momentum_sgd")
    table = mv.MatrixTableHandler(2, 1)
    table.add([1.0, 1.0], [1, 1], sync=True)
    # v = 0.1, then 0.19: not one step with the sum.
    assert table.get()[1] == pytest.approx(-0.29)
    mv.shutdown()


def test_wrong_data():
    mv.init()
    table = mv.MatrixTableHandler(3, 2)
    for data, row_ids in ((None, None), ([1, 2, 3], None), ([1, 2, 3], [0, 1]), ([1, 2], [3])):
        with pytest.raises(uni.UsageError):
            table.add(data, row_ids)
    assert (table.get() == 0).all()
    with pytest.raises(NotImplementedError):
        mv.TableHandler(3)


def test_data_are_converted_to_copies():
    mine = np.arange(3.0)
    copy = convert_data(mine)
    assert copy.dtype == np.float32 and not np.shares_memory(copy, mine)
    assert mv.TableHandler.convert_data(copy) is not copy
    torch = pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    assert convert_data(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
