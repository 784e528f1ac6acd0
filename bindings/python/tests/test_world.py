"""The lifecycle of a world: init, shutdown, fork."""

import os
import secrets
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import unisono as uni


def test_init_is_idempotent():
    world = uni.init()
    assert uni.init() is world is uni.world()
    assert (world.rank, world.size, world.local_rank, world.local_size) == (0, 1, 0, 1)
    assert (world.transport, world.launcher, len(world.hosts)) == ("alone", "none", 1)
    assert "rank 0 of 1" in repr(world)


def test_a_second_init_sets_the_timeout():
    world = uni.init(timeout=200)
    group, table = world.group([0]), uni.ArrayTable(3)
    assert uni.init(timeout=0.05) is world
    uni.init()  # without an argument the timeout stays
    for wait in (world, group):
        with pytest.raises(uni.Timeout):
            wait.recv(np.empty(1), source=0)
    table.add([1, 1, 1])
    with pytest.raises(uni.UsageError, match="timeout above 0"):
        uni.init(timeout=0)


def test_a_single_process_fits_a_limited_address_space():
    code = "import unisono as uni; uni.init(); uni.barrier(); print('works')"
    limited = ["bash", "-c", 'ulimit -v 8000000; exec "$@"', "bash", sys.executable, "-c", code]
    environment = dict(os.environ, OMP_NUM_THREADS="1", UNISONO_HEAP="256")
    assert subprocess.check_output(limited, env=environment, text=True, timeout=120) == "works\n"
    rejected = subprocess.run(
        limited, env=dict(environment, UNISONO_HEAP=""), capture_output=True, text=True, timeout=120
    )
    assert rejected.returncode != 0 and "UNISONO_HEAP" in rejected.stderr, rejected.stderr


def test_a_new_world_after_shutdown():
    first = uni.init()
    group = first.group([0])
    uni.shutdown()
    uni.shutdown()
    for use in (first.barrier, group.barrier, lambda: first.empty(3), lambda: first.group([0])):
        with pytest.raises(uni.UsageError, match="after shutdown"):
            use()
    second = uni.init()
    assert second is not first
    assert uni.all_reduce(np.ones(3)).sum() == 3


@pytest.mark.parametrize(
    "use", [uni.barrier, uni.world, lambda: uni.empty(3), lambda: uni.gather(np.ones(3))]
)
def test_before_init(use):
    with pytest.raises(uni.UsageError, match=r"unisono\.init\(\)"):
        use()


def test_groups_of_one():
    world = uni.init()
    assert world.split(None) is None
    group = world.split(5, key=3, timeout=10)
    assert (group.rank, group.size, group.members) == (0, 1, (0,))
    with pytest.raises((uni.UsageError, OverflowError)):
        world.split(-1)


def in_child(check):
    """Runs a check in a forked child that then exits normally; returns the child's exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            check()
            os._exit(0)
        except BaseException as error:
            print("in the child:", repr(error))
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_may_not_use_the_world():
    world = uni.init()
    x = uni.empty(10)

    def check():
        for use in (world.barrier, uni.barrier, lambda: uni.all_reduce(x), lambda: world.empty(3)):
            with pytest.raises(uni.UsageError, match="fork"):
                use()
        uni.shutdown()

    assert in_child(check) == 0
    uni.barrier()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_of_a_single_rank_may_start_a_new_world():
    uni.init()
    assert in_child(lambda: uni.init().barrier()) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_signal_handler_ends_a_wait_in_a_forked_child():
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    def check():
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        with pytest.raises(Stop):
            uni.World.join(secrets.token_hex(16), rank=0, size=2, timeout=60)  # the other rank does not come
        assert time.monotonic() - begin < 30

    assert in_child(check) == 0


def test_ranks_survive_forked_children(run_ranks):
    run_ranks(2, "fork.py").check()


def test_a_rank_joins_its_job_once(run_ranks):
    run_ranks(2, "again.py").check()


@pytest.mark.parametrize("how", ["pending", "thread", "exit"])
def test_programs_exit_with_calls_in_progress(run_ranks, how):
    job = run_ranks(1, "unfinished.py", how, launcher="none", UNISONO_TIMEOUT="1000")
    assert job.status == (3 if how == "exit" else 0), job.output


def test_kinds_of_errors():
    kinds = [uni.UsageError, uni.Timeout, uni.PeerLost, uni.IoError, uni.Unsupported, uni.InternalError]
    builtins = [ValueError, TimeoutError, ConnectionError, OSError, NotImplementedError, RuntimeError]
    assert [kind.kind for kind in kinds] == [1, 2, 3, 4, 5, 6]
    for kind, builtin in zip(kinds, builtins, strict=True):
        assert issubclass(kind, uni.Error) and issubclass(kind, builtin)
    with pytest.raises(uni.UsageError) as caught:
        uni.init()
        uni.all_reduce(np.ones(3, dtype="longdouble"))
    assert caught.value.operation == "all_reduce"


def test_no_framework_is_imported():
    script = (
        "import sys, unisono; unisono.init(); print(sorted({'torch', 'jax', 'ml_dtypes'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"


def test_dir_lists_only_the_public_names():
    names = dir(uni)
    assert "ParameterManager" in names and "ArrayTable" in names
    assert not {"Any", "TYPE_CHECKING"} & set(names)
    assert all(hasattr(uni, name) for name in names)


def test_the_program_is_in_the_package():
    for command in ([sys.executable, "-m", "unisono"], [f"{sys.prefix}/bin/unisono"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0 and "doctor" in done.stdout, done.stderr


def test_worlds_joined_by_name(run_ranks):
    """Processes that share only a name; several worlds at once, and one after the other."""
    run_ranks(3, "joined.py", launcher="none").check()


def test_a_world_by_name_checks_its_arguments():
    for arguments, text in (
        (("", 0, 1), "a name of 1 to 64 bytes"),
        (("name", 3, 3), "a rank below 3"),
        (("name", 0, 0), "at least one rank"),
    ):
        with pytest.raises(uni.UsageError, match=text):
            uni.World.join(*arguments)


def test_leaving_a_world_keeps_the_default_one():
    default = uni.init()
    joined = uni.World.join("one", 0, 1)
    joined.leave()
    joined.leave()
    with pytest.raises(uni.UsageError, match="after shutdown"):
        joined.barrier()
    default.barrier()
    default.leave()
    with pytest.raises(uni.UsageError, match="there is no world"):
        uni.world()


def test_a_world_is_a_context():
    with uni.init() as world:
        assert world is uni.world()
        table = uni.ArrayTable(3)
        table.add([1, 1, 1], wait=False)
    with pytest.raises(uni.UsageError, match="no world"):
        uni.world()
    with pytest.raises(uni.UsageError, match="after shutdown"):
        world.barrier()
    with uni.init() as outer:
        with uni.init() as inner:
            assert inner is outer
        assert outer.all_reduce(np.ones(2)).sum() == 2
    with pytest.raises(uni.UsageError, match="after shutdown"):
        outer.barrier()
    with uni.init() as again:
        again.leave()  # the end of the context does nothing more
    assert uni.init() is not again


def test_a_joined_world_is_a_context():
    with uni.World.join(secrets.token_hex(16), rank=0, size=1) as world:
        assert world.all_reduce(np.ones(2)).sum() == 2
    with pytest.raises(uni.UsageError, match="after shutdown"):
        world.barrier()


@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_a_context_ends_with_the_exception_of_its_body(raised):
    with pytest.raises(type(raised)) as found, uni.init() as world:
        raise raised
    assert found.value is raised
    with pytest.raises(uni.UsageError, match="after shutdown"):
        world.barrier()


def test_a_context_that_fails_does_not_wait_for_adds_of_tables(run_ranks):
    job = run_ranks(2, "context.py", deadline=120)
    assert job.status == 3 and "mine" in job.output, job.output
    assert job.notes[0] == "PeerLost" and float(job.notes[1]) < 20
