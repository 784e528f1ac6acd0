"""Several threads of the master use the workers: each operation completes before the next begins."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from unisono import functions
from unisono.functions.pool import active

THREADS = 6
DEADLINE = 60


def together(work):
    """Runs a function in several threads that start together; raises the exception of any of them."""
    start, errors = threading.Barrier(THREADS), []

    def run(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def multiply(factor):
    return lambda x: (x * factor).sum()


def test_first_calls(fork):
    for _ in range(3):
        fork(2)
        x = functions.data(np.arange(10.0))
        made = [functions.function(multiply(number), "sum") for number in range(THREADS)]

        def work(number, made=made, x=x):
            for _ in range(10):
                assert made[number](x) == 45 * number
                assert made[number](x, batch=[1, 4, 7]) == 12 * number

        together(work)
        functions.close()
    fork(1)


def test_functions_created_in_threads(fork):
    fork(2)
    x = functions.data(np.arange(10.0))

    def work(number):
        for factor in range(5):
            weights = functions.shared(np.full(10, 1.0 + number), "weights")
            f = functions.function(
                lambda x, weights, k=factor: (k * x * weights[0]).sum(), "sum", shareds=[weights]
            )
            assert f(x) == 45 * factor * (number + 1)

    together(work)


def test_variables_moved_in_threads(fork):
    fork(2)
    held = [functions.shared(np.zeros(2), "held") for _ in range(THREADS)]
    made = [functions.function(lambda held: held.sum(), "sum", shareds=[one]) for one in held]

    def work(number):
        for step in range(10):
            functions.scatter(held[number], np.arange(4.0) + step)
            functions.set_value(1, held[number], np.arange(5.0), batch=[4, 0])
            assert functions.gather(held[number]).tolist() == [[step, step + 1], [4, 0]]
            functions.broadcast(held[number], np.full(2, float(number)))
            functions.all_reduce(held[number], "sum")
            assert made[number]() == 8 * number

    together(work)


def test_training_steps_are_atomic(fork):
    torch = pytest.importorskip("torch")
    fork(2)
    weights = torch.nn.Parameter(torch.zeros(1))
    step = functions.make_train_function(
        lambda x: (weights * x).mean(), [weights], update_rule="sgd", learning_rate=1.0
    )
    inputs = [functions.data(np.full(4, float(number), "float32")) for number in range(THREADS)]

    def work(number):
        for _ in range(5):
            step(inputs[number])

    together(work)
    expected = -5.0 * sum(range(THREADS))
    assert functions.gather(weights).ravel().tolist() == [expected, expected]


def test_a_call_during_close_raises(fork):
    fork(2)
    rest = functions.function(lambda x: time.sleep(10 * DEADLINE * x[0]), name="rest")
    x, pool, caught = functions.data(np.arange(2.0)), active("the test"), []
    functions.distribute()

    def call():
        try:
            rest(x)
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    deadline = time.monotonic() + DEADLINE
    while pool.member.is_idle:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    functions.close()
    thread.join(DEADLINE)
    assert len(caught) == 1 and "rest" in caught[0] and "close() was called meanwhile" in caught[0]


# Libraries that a test may have imported warn about forks.
SCRIPT = """
import os, signal, threading
import numpy as np
from unisono import functions
from unisono.functions.pool import active

functions.fork(2)
f, x = functions.function(lambda x: x.sum(), "sum"), functions.data(np.ones(4))
has_turn, is_done = threading.Event(), threading.Event()


def hold():
    with active("the test").lock:
        has_turn.set()
        is_done.wait(60)


threading.Thread(target=hold).start()
has_turn.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)  # It would wait for a thread that it does not have.
    try:
        f(x)
    except RuntimeError as error:
        os._exit(0 if "forked child" in str(error) else 1)
    os._exit(1)
status = os.waitpid(child, 0)[1]
is_done.set()
print(status, f(x))
"""


def test_a_forked_child_is_rejected_and_does_not_wait(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "0 4.0\n", done.stderr
