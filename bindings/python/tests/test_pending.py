"""Calls in the background."""

import asyncio
import gc
import sys
import threading

import numpy as np
import pytest

import unisono as uni


@pytest.fixture
def world():
    return uni.init()


def test_every_verb_can_be_pending(world):
    x = np.arange(4.0)
    assert uni.barrier(wait=False).wait() is None
    assert uni.all_reduce(x, wait=False).wait() is x
    assert uni.reduce(x, wait=False).wait() is x
    assert uni.broadcast(x, wait=False).wait() is x
    for make in (uni.all_gather, uni.gather):
        assert make(x, wait=False).wait().shape == (1, 4)
        assert make(x, varied=True, wait=False).wait().shape == (4,)
    for make in (uni.scatter, uni.reduce_scatter, uni.all_to_all):
        np.testing.assert_array_equal(make(x, wait=False).wait(), x)
    np.testing.assert_array_equal(uni.all_to_all([x], wait=False).wait()[0], x)
    sent = uni.send(x, 0, wait=False)
    np.testing.assert_array_equal(uni.recv(np.zeros(4), 0, wait=False).wait(), x)
    sent.wait()


def test_waiting_again_returns_the_same_result(world):
    pending = uni.gather(np.arange(3), wait=False)
    assert pending.wait() is pending.wait(timeout=1)
    assert pending.done() and "done" in repr(pending)


def test_errors_are_raised_before_the_start_or_by_wait(world):
    with pytest.raises(uni.UsageError):
        uni.all_reduce(np.ones(3, dtype="longdouble"), wait=False)
    pending = uni.recv(np.ones(3), 0, wait=False, timeout=0.2)
    for _ in range(2):
        with pytest.raises(uni.Timeout, match="recv"):
            pending.wait()
    assert pending.done()


def test_a_wait_can_time_out_and_be_repeated(world):
    x = np.zeros(3)
    pending = uni.recv(x, 0, wait=False)
    assert not pending.done() and "running" in repr(pending)
    with pytest.raises(uni.Timeout, match="still runs"):
        pending.wait(timeout=0.1)
    uni.world().split(0).barrier()
    uni.send(np.arange(3.0), 0)
    assert pending.wait(timeout=20) is x
    np.testing.assert_array_equal(x, np.arange(3.0))


def test_callbacks_run_when_the_call_has_ended(world, monkeypatch):
    seen, ended = [], threading.Event()
    pending = uni.all_reduce(np.ones(3), wait=False)
    pending.add_done_callback(lambda done: seen.append(done.wait().sum()))
    pending.add_done_callback(lambda done: ended.set())
    assert ended.wait(60) and seen == [3.0]
    pending.wait()
    pending.add_done_callback(lambda done: seen.append(done is pending))
    assert seen == [3.0, True]
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_value))
    pending, ended = uni.barrier(wait=False), threading.Event()
    pending.add_done_callback(lambda done: 1 / 0)
    pending.add_done_callback(lambda done: ended.set())
    assert ended.wait(60) and isinstance(reported[0], ZeroDivisionError)
    pending.wait()


def test_dropping_one_warns_and_keeps_its_memory(world):
    pending = uni.recv(np.zeros(100_000), 0, wait=False)
    with pytest.warns(ResourceWarning, match="recv"):
        del pending
        gc.collect()
    garbage = [np.ones(100_000) for _ in range(10)]
    uni.send(np.full(100_000, 2.0), 0)
    uni.barrier()
    assert all((one == 1).all() for one in garbage)


def test_threads_that_wait_for_one_call_get_the_same_result(world):
    def wait(pending, outcomes):
        outcomes.append(pending.wait(100))

    for _ in range(50):
        arguments = uni.all_gather(np.ones(3), wait=False), (outcomes := [])
        threads = [threading.Thread(target=wait, args=arguments) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert len(outcomes) == 3 and all(one is outcomes[0] for one in outcomes)


def test_a_wait_that_an_exception_ended_can_be_repeated(world, monkeypatch):
    """A signal handler may raise after the call has ended, before its result reaches the caller."""
    pending = uni.all_gather(np.ones(3), wait=False)

    def interrupted(memory, like):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unisono.group.take_over", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pending.wait()
    assert pending.done()
    np.testing.assert_array_equal(pending.wait(timeout=100), np.ones((1, 3)))


def test_background_calls_keep_their_order(run_ranks):
    run_ranks(3, "background.py").check()


def test_a_coroutine_awaits_a_call(world):
    async def steps():
        x = np.arange(3.0)
        assert await uni.all_reduce(x, wait=False) is x
        first, second = await asyncio.gather(uni.all_gather(x, wait=False), uni.barrier(wait=False))
        assert first.shape == (1, 3) and second is None
        return await world.all_gather(x, wait=False)

    assert asyncio.run(steps()).shape == (1, 3)


def test_the_event_loop_runs_while_a_call_does(world):
    async def both():
        x = np.zeros(2)
        waiting = asyncio.ensure_future(uni.recv(x, 0, tag=4, wait=False))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        uni.send(np.arange(2.0), 0, tag=4)
        assert await waiting is x
        return x.tolist()

    assert asyncio.run(both()) == [0, 1]


def test_a_coroutine_gets_the_exception(world):
    async def failing():
        pending = uni.recv(np.zeros(2), 0, tag=5, wait=False, timeout=0.2)
        for _ in range(2):
            with pytest.raises(uni.Timeout, match="recv"):
                await pending

    asyncio.run(failing())


def test_a_cancelled_coroutine_leaves_the_call_running(world):
    x = np.zeros(2)
    pending = uni.recv(x, 0, tag=6, wait=False)

    async def cancelled():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pending, 0.05)
        assert not pending.done()

    asyncio.run(cancelled())  # the loop is closed when the call ends
    uni.send(np.arange(2.0), 0, tag=6)
    assert pending.wait(20) is x and x.tolist() == [0, 1]

    async def again():
        return await pending

    assert asyncio.run(again()) is x
    assert uni.all_reduce(np.ones(2)).tolist() == [1, 1]
