"""Worker processes: how they start and end, which functions they cannot run, and what the master reports."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import is_gone, wait_until

import unisono as uni
from unisono import functions
from unisono.functions.pickling import Distribute
from unisono.functions.pool import active

PROGRAMS = Path(__file__).parent / "programs"


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options
    )


def test_a_killed_worker_is_named_and_nothing_is_left():
    done = run(PROGRAMS / "trouble.py", "worker killed")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["lost"] == [1] and seen["seconds"] < 20
    assert "die: lost rank 1" in seen["again"] and "close() and then start()" in seen["again"]
    assert all(is_gone(pid) for pid in seen["pids"])


def test_shared_memory_is_freed_with_its_last_array():
    script = """
import gc, os, signal, time
from pathlib import Path
import numpy as np
import unisono
from unisono import functions

def shared():
    files = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return "memfd:unisono" in Path("/proc/self/maps").read_text() + " ".join(files)

for kill in (False, True):
    functions.fork(3)
    rows = functions.data(np.arange(3.0))
    die = functions.function(lambda x: os.kill(os.getpid(), signal.SIGKILL * (kill and x[0] == 1)), "sum")
    try:
        functions.function(lambda x: x.sum(), "sum")(rows)
        if kill:
            die(rows)
    except unisono.PeerLost:
        print("lost")
    functions.close()
    assert shared() and rows.data.tolist() == [0, 1, 2], "what was there can still be read"
    del rows, die
    gc.collect()
    deadline = time.monotonic() + 100  # a thread that answers other ranks may sleep for a moment
    while shared():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""
    done = run("-c", script)
    assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr


def test_workers_end_with_a_killed_master():
    command = [sys.executable, PROGRAMS / "trouble.py", "master killed"]
    master = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    pids = json.loads(master.stdout.readline())["pids"]
    assert len(set(pids)) == 3 and master.pid in pids
    # Output of workers goes to the master's standard error.
    assert "resting" in master.stderr.readline()
    master.kill()
    master.communicate()
    wait_until(lambda: all(is_gone(pid) for pid in pids))


def test_a_script_without_main_guard_or_close_ends_its_workers():
    done = run(PROGRAMS / "trouble.py", "not closed")
    assert done.returncode == 0, done.stderr
    assert all(is_gone(pid) for pid in json.loads(done.stdout)["pids"])
    assert done.stderr == ""


def test_a_script_from_standard_input_works():
    script = """
from unisono import functions
functions.fork(2)
factor = 3.0
class Scale:
    def __call__(self, x): return (x * factor).sum()
print(functions.function(Scale(), "sum")(functions.data([1.0, 2.0, 4.0])))
"""
    done = run("-", input=script)
    assert done.stdout == "21.0\n", done.stderr


def test_an_interactive_session_works():
    """Line by line as in a notebook: no source file, definitions that change, an error in between."""
    lines = """
import numpy as np
from unisono import functions
functions.fork(2)
factor = 2.0
def scaled(x):
    return (x * factor).sum()

x = functions.data(np.arange(4.0))
print("first", functions.function(scaled, "sum")(x))
factor = 3.0
def scaled(x):
    return (x * factor).sum() + offsets.sum()

offsets = np.ones(2)
again = functions.function(scaled, "sum")
print("second", again(x))
def wrong(x):
    return missing

functions.function(wrong, "sum")(x)
print("third", again(x))
functions.fork(2)
functions.close()
functions.fork(3)
print("fourth", functions.function(lambda x: np.array([len(x)]), "gather")(functions.data(np.arange(7.0))))
"""
    done = run("-i", "-q", input=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[1:-2] == ["first 12.0", "second 22.0", "third 22.0", "3"], done.stderr
    assert done.stdout.endswith("fourth [2 2 3]\n")
    assert "NameError: name 'missing'" in done.stderr and "workers already" in done.stderr


def test_globals_that_change_are_sent_again():
    lines = """
import numpy as np
from unisono import functions
functions.fork(2)
factor = 2.0
def half(x):
    return x / divisor

divisor = 2.0
def scaled(x):
    return sum(half(row) * factor for row in x)

f = functions.function(scaled, "sum")
x = functions.data(np.arange(4.0))
print("first", f(x))
factor = 4.0
print("second", f(x), f.alone(x.data))
divisor = 1.0
print("third", f(x))
def half(x):
    return 0 * x

print("fourth", f(x))
import threading
factor = threading.Lock()
f(x)
factor = 1.0
print("fifth", f(x))
"""
    done = run("-i", "-q", input=lines)
    said = ["2", "first 6.0", "second 12.0 12.0", "third 24.0", "fourth 0.0", "fifth 0.0"]
    assert done.stdout.splitlines() == said, done.stderr
    assert "cannot pickle '_thread.lock'" in done.stderr


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_closures_that_change_are_sent_again(fork, framework):
    """Even if each worker compiles the function that it gets."""
    pytest.importorskip(framework)
    fork(2)
    scale = 2.0
    f = functions.function(lambda x: (x * scale).sum(), "sum", framework=framework)
    x = functions.data(np.arange(4, dtype="float32"))
    assert f(x) == 12
    scale = 3.0
    assert f(x) == 18 and f(x) == 18 and f.alone(x.data) == 18


def test_a_function_compiled_by_alone_is_updated_by_the_first_call(fork):
    pytest.importorskip("jax")
    fork(2)
    scale = 2.0
    f = functions.function(lambda x: (x * scale).sum(), "sum", framework="jax")
    x = functions.data(np.arange(4, dtype="float32"))
    assert f.alone(x.data) == 12
    scale = 3.0
    assert f(x) == 18 and f.alone(x.data) == 18


def test_a_worker_that_cannot_start_is_reported(fork, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    with pytest.raises(uni.PeerLost, match="rank 1"):
        fork(2)
    monkeypatch.delenv("PYTHONHOME")
    assert fork(2) == 2


def test_standard_input_of_workers_is_empty(fork):
    fork(2)

    def count(x):
        if x[0] == 0:
            return np.array([0])
        started = subprocess.run(
            [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"],
            capture_output=True,
            timeout=60,
        )
        return np.array([int(started.stdout) + len(sys.stdin.read())])

    assert functions.function(count, "gather")(functions.data(np.arange(2.0))).tolist() == [0, 0]


def test_non_string_entries_of_the_path_are_skipped(fork, monkeypatch, tmp_path):
    (tmp_path / "only_found_in_the_path.py").write_text("value = 3.0")
    monkeypatch.setattr(sys, "path", [tmp_path, b"/nowhere", *sys.path, str(tmp_path)])
    fork(2)

    def imported(x):
        import only_found_in_the_path

        return only_found_in_the_path.value

    assert functions.function(imported, "sum")(functions.data(np.ones(2))) == 6
    sys.modules.pop("only_found_in_the_path")


def test_an_exception_arrives_with_its_traceback_and_workers_stay_usable(fork):
    fork(3)

    def picky(x):
        if x[0] > 0:
            raise LookupError(f"not {x[0]}")
        return x.sum()

    f = functions.function(picky, "sum")
    with pytest.raises(functions.WorkerError) as caught:
        f(functions.data(np.arange(3.0)))
    assert caught.value.worker == 1
    assert "worker 1 raised LookupError: not 1.0 (1 more ranks failed too)" in str(caught.value)
    assert "in picky" in caught.value.traceback and "test_workers.py" in caught.value.traceback
    assert isinstance(caught.value, RuntimeError) and isinstance(caught.value, uni.Error)
    assert f(functions.data(-np.arange(3.0))) == -3
    with pytest.raises(LookupError, match="not 9"):
        f(functions.data(np.full(3, 9.0)))
    assert f(functions.data(-np.arange(3.0))) == -3


def test_system_exit_in_a_function_is_an_error(fork):
    fork(2)
    leave = functions.function(lambda x: sys.exit("enough") if x[0] else x.sum(), "sum")
    with pytest.raises(functions.WorkerError, match="worker 1 raised SystemExit: enough"):
        leave(functions.data(np.arange(2.0)))
    assert leave(functions.data(np.zeros(2))) == 0


def test_a_call_has_the_timeout_of_fork(fork):
    fork(2, timeout=2)
    rest = functions.function(lambda x: time.sleep(60 * x[0]), name="rest")
    with pytest.raises(
        uni.Timeout, match=r"rest: timed out waiting for rank 1.* for 2 s, .*start\(timeout.*close\(\)"
    ):
        rest(functions.data(np.arange(2.0)))
    with pytest.raises(uni.Timeout):
        rest(functions.data(np.zeros(2)))


def test_functions_do_not_call_functions(fork):
    fork(2)
    inner = functions.function(lambda x: x.sum(), "sum")
    x = functions.data(np.ones(2))
    called = []

    def nested(rows):
        # Only the master can try: workers do not have this function.
        if os.getpid() == master:
            called.append(1)
            here.inner(here.x)
        return rows.sum()

    master, here = os.getpid(), Here(inner, x)
    outer = functions.function(nested, "sum")
    with pytest.raises(RuntimeError, match="inside a function"):
        outer(x)
    assert called and inner(x) == 2


class Here:
    """Objects that stay in the master."""

    def __init__(self, inner, x):
        self.inner, self.x = inner, x

    def __reduce__(self):
        return Here, (None, None)


def test_threads_of_the_master_take_turns(fork):
    fork(2)
    total = functions.function(lambda x, s: x.sum() + s.sum(), "sum", bcast_inputs=["s"])
    zero, wrong = functions.data(np.zeros(1)), []

    def calls(number):
        x = functions.data(np.full((50, 3), float(number)))
        rows = list(range(number + 3))
        wrong.extend(1 for _ in range(50) if total(x, zero, batch=rows) != 3 * number * len(rows))

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not wrong


def test_a_missing_package_is_named(fork, monkeypatch):
    fork(2)
    f = functions.function(lambda x: x.sum(), "sum")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cloudpickle", None)
        with pytest.raises(uni.Unsupported, match="pip install cloudpickle"):
            functions.distribute()
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(2))) == 2
    assert f(functions.data(np.ones(2))) == 2, "it was not the function's fault"


def test_a_failing_command_is_an_error_and_workers_stay_usable(fork):
    fork(2)
    pool = active("the test")
    with pytest.raises(functions.WorkerError, match="worker 1 raised KeyError: 99"):
        pool.run(Distribute(pool.member, b""), ("call", 99, [], None, None, None, 1, None))
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(2))) == 2


def test_a_function_first_called_inside_another_works_outside(fork):
    fork(2)
    made = []

    def nested(x):
        if functions.rank() == 0:
            made.append(functions.function(lambda x: x.sum(), "sum"))
            made[0](functions.data(np.ones(2)))
        return x.sum()

    x = functions.data(np.ones(4))
    with pytest.raises(RuntimeError, match="inside a function"):
        functions.function(nested, "sum")(x)
    assert made[0](x) == 4


def test_an_unpicklable_function_is_an_error_and_workers_stay_usable(fork):
    fork(2)
    lock = threading.Lock()
    wrong = functions.function(lambda x: (lock, x)[1].sum(), "sum")
    right = functions.function(lambda x: x.sum(), "sum")
    with pytest.raises(TypeError, match="pickle"):
        functions.distribute()
    x = functions.data(np.ones(3))
    assert right(x) == 3
    with pytest.raises(TypeError, match="pickle"):
        wrong(x)
    assert right(x) == 3


class OnlyHere:
    """Cannot be unpickled in another process."""

    def __init__(self):
        self.home = os.getpid()

    def __call__(self, x):
        return x.sum()

    def __reduce__(self):
        return arrive, (self.home,)


def arrive(home):
    assert home == os.getpid(), "far from home"
    return OnlyHere()


def test_a_function_that_cannot_be_unpickled_is_an_error_and_workers_stay_usable(fork):
    fork(3)
    wrong = functions.function(OnlyHere(), "sum")
    right = functions.function(lambda x: x.sum(), "sum")
    x = functions.data(np.ones(3))
    assert right(x) == 3
    with pytest.raises(functions.WorkerError, match="far from home"):
        wrong(x)
    assert functions.function(lambda x: x.max(), "max")(x) == 1


def test_large_messages_and_many_calls(fork):
    fork(2)
    big = np.arange(100_000.0)
    f = functions.function(lambda x: x + big[: len(x)], "gather")
    x = functions.data(np.zeros(7))
    for _ in range(200):
        assert f(x).tolist() == [0, 1, 2, 0, 1, 2, 3]


def test_any_rank_can_be_the_master(fork):
    fork(3, master_rank=2)
    f = functions.function(lambda x: x * 2, "gather")
    x = functions.data(np.arange(7.0))
    assert f(x).tolist() == [0, 2, 4, 6, 8, 10, 12]
    local = functions.function(lambda x: x, [None])
    assert local(x)[0].tolist() == [4, 5, 6]


def test_one_worker_is_the_master_alone(fork):
    fork(1)
    s = functions.shared([1.0, 2.0], "s")
    f = functions.function(lambda x, s: functions.updated(x.sum(), s=s * 2), "avg", updates=[s])
    assert f(functions.data(np.arange(4.0)), num_slices=2) == 3
    functions.all_reduce(s)
    assert s.get_value().tolist() == [2, 4]


@pytest.mark.parametrize("dtype", ["float64", "int16", "bool", "complex64"])
@pytest.mark.parametrize("mode", ["sum", "max", "gather", None])
def test_results_of_one_worker_are_not_its_inputs(fork, dtype, mode):
    fork(1)
    s, x = functions.shared(np.ones(3, dtype), "s"), functions.data(np.zeros(3, dtype))
    (result,) = functions.function(lambda x, s: x, [mode], shareds=[s])(x)
    kept = functions.reduce(s, "sum", in_place=False)
    x[...] = 1
    s.value[...] = 0
    assert not result.any() and result.flags.writeable and kept.all()


def test_the_world_of_the_process_is_independent(fork):
    world = uni.init()
    fork(2)
    assert world.size == 1 and uni.all_reduce(np.ones(2)).tolist() == [1, 1]
    # For its functions, a worker is a process without a launcher.
    f = functions.function(lambda x: np.array([uni.init().size]), "gather")
    assert f(functions.data(np.ones(2))).tolist() == [1, 1]


def test_workers_use_one_thread_by_default(fork, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    fork(2)
    threads = functions.function(lambda x: np.array([int(os.environ.get("OMP_NUM_THREADS", 0))]), "gather")
    assert threads(functions.data(np.ones(2))).tolist() == [0, 1]
    functions.close()
    fork(2, threads=3)
    threads = functions.function(lambda x: np.array([int(os.environ.get("OMP_NUM_THREADS", 0))]), "gather")
    assert threads(functions.data(np.ones(2))).tolist() == [0, 3]


def test_profiles_are_written(fork, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fork(2, profile_workers=True)
    functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(2)))
    functions.close()
    assert [path.name for path in tmp_path.iterdir()] == ["synk_worker_1.prof"]
