"""Ctrl-C at various times: what is lost, and which processes end."""

import atexit
import os
import signal
import threading
import time

import numpy as np
import pytest
from waiting import is_gone, wait_until

from unisono import functions
from unisono.functions.pool import active


@pytest.fixture
def heeds_control_c():
    """Restores the handler: a program that was started in the background may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_control_c")
def test_a_master_interrupted_while_it_waits_must_fork_again(fork):
    fork(2)
    master = os.getpid()

    def rest(x):
        if x[0]:
            time.sleep(0.3)  # until the master has finished its own part, which is empty
            os.kill(master, signal.SIGINT)
            time.sleep(60)

    rest = functions.function(rest, name="rest")
    with pytest.raises(KeyboardInterrupt):
        rest(functions.data(np.arange(2.0)))
    with pytest.raises(RuntimeError, match=r"interrupted.*close"):
        rest(functions.data(np.zeros(2)))
    functions.close()
    fork(2)
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(2))) == 2


@pytest.mark.usefixtures("heeds_control_c")
@pytest.mark.parametrize("stopped", [True, False])
def test_an_interrupted_close_ends_the_workers(fork, stopped):
    """While a worker does not respond, and while a worker takes long to clean up."""
    fork(3)
    master, pool = os.getpid(), active("the test")

    def interrupt():
        wait_until(lambda: pool.is_closed)
        os.kill(master, signal.SIGINT)

    def tidy():
        os.kill(master, signal.SIGINT)
        time.sleep(60)

    def where(x):
        if x[0] == 2 and not stopped:
            atexit.register(tidy)
        return np.array([os.getpid()])

    pids = functions.function(where, "gather")(functions.data(np.arange(3.0))).tolist()
    if stopped:
        os.kill(pids[1], signal.SIGSTOP)
        threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        functions.close()
    assert is_gone(pids[1]) and is_gone(pids[2])
    assert fork(2) == 2


def test_an_interrupted_master_keeps_its_workers(fork):
    fork(2)

    def interrupted(x):
        if x[0] == 0:
            raise KeyboardInterrupt
        return x.sum()

    f = functions.function(interrupted, "sum")
    with pytest.raises(KeyboardInterrupt):
        f(functions.data(np.arange(2.0)))
    assert f(functions.data(np.ones(2))) == 2


class Interrupts:
    """Interrupts its own pickling a few times, as Ctrl-C would."""

    def __init__(self, value, times):
        self.value, self.times = value, times

    def __reduce__(self):
        if self.times:
            self.times -= 1
            raise KeyboardInterrupt
        return Interrupts, (self.value, 0)


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_an_interrupt_while_changes_are_sent_loses_none(fork, framework):
    pytest.importorskip(framework)
    fork(2)
    held = Interrupts(1.0, 0)
    f = functions.function(lambda x: x.sum() * held.value, "sum", framework=framework)
    x = functions.data(np.ones(4, "float32"))
    assert f(x) == 4
    held = Interrupts(5.0, 1)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    assert f.alone(x.data) == 20 and f(x) == 20 and f(x) == 20


@pytest.mark.parametrize("wrong", [False, True])
def test_an_interrupt_while_functions_are_sent_loses_none(fork, wrong):
    """Even if they are sent one by one, because one of them cannot be pickled."""
    fork(2)
    x, lock = functions.data(np.arange(4.0)), threading.Lock()
    bad = functions.function(lambda x: (lock, x)[1].sum(), "sum") if wrong else None
    held = Interrupts(3.0, 1)
    f = functions.function(lambda x: x.sum() * held.value, "sum")
    g = functions.function(lambda x: x.max(), "max")
    with pytest.raises(KeyboardInterrupt):
        functions.distribute()
    assert g(x) == 3 and f(x) == 18
    if bad is not None:
        with pytest.raises(TypeError, match="pickle"):
            bad(x)


def test_terminal_signals_reach_only_the_master(fork):
    fork(2)
    pid = functions.function(lambda x: np.array([os.getpid()]), "gather")(functions.data(np.ones(2)))[1]
    os.kill(int(pid), signal.SIGINT)
    assert functions.function(lambda x: x.sum(), "sum")(functions.data(np.ones(2))) == 2
