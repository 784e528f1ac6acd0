"""Maps over items: results, errors, interrupts and progress."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import unisono as uni
from unisono import functions


class Point:
    """A class of this file, which workers get by value."""

    def __init__(self, x):
        self.x = x


def moved(point):
    assert isinstance(point, Point)
    return Point(point.x + 1)


def clear(values):
    values.clear()
    return os.getpid()


@pytest.fixture(params=[1, 2, 3])
def workers(request):
    """Some workers; `local` counts this process, too."""
    with uni.local(request.param) as made:
        yield made


@pytest.fixture
def pair():
    with uni.local(2) as made:
        yield made


def test_results_are_in_the_order_of_the_items(workers):
    shift = 3
    for count in (0, 1, 2, 5, 100, 3000):
        assert workers.map(lambda x: x * x + shift, range(count)) == [x * x + 3 for x in range(count)]
    shift = 4  # what is captured is sent again
    assert workers.map(lambda x: x + shift, [1]) == [5]
    assert workers.map(str, iter([1, "b", None])) == ["1", "b", "None"]
    arrays = workers.map(np.zeros, [2, 3, 4])
    assert [one.shape for one in arrays] == [(2,), (3,), (4,)]


def test_a_function_is_sent_again_when_what_it_captures_has_changed(pair):
    scale = 2

    def scaled(x):
        return scale * x

    assert pair.map(scaled, range(4)) == [0, 2, 4, 6]
    scale = 3
    assert pair.map(scaled, range(4)) == [0, 3, 6, 9]


def test_all_processes_take_part_and_items_are_copies(workers):
    items = [[1], [2], [3]]
    assert len(set(workers.map(clear, items))) == workers
    assert items == [[1], [2], [3]]


def test_classes_of_the_program_keep_their_identity(pair):
    before = Point.__init__
    points = pair.map(moved, [Point(x) for x in range(4)])
    assert [type(one) is Point and one.x for one in points] == [1, 2, 3, 4]
    assert Point.__init__ is before


def test_an_error_names_the_item_and_workers_remain_usable(pair):
    def reciprocal(x):
        return 1 / x

    with pytest.raises(
        functions.WorkerError, match="map of 'reciprocal': worker 1 raised ZeroDivision"
    ) as error:
        pair.map(reciprocal, [1, 0])
    assert "in reciprocal" in error.value.traceback
    if hasattr(ZeroDivisionError, "add_note"):
        assert "map computed item 1: 0" in str(error.value)
    with pytest.raises(ZeroDivisionError):
        pair.map(reciprocal, [0, 1])
    with pytest.raises(functions.WorkerError, match="pickle"):
        pair.map(lambda x: lambda: x, range(2))
    with pytest.raises(TypeError, match="a function of one item, received int"):
        pair.map(3, range(2))
    assert pair.map(reciprocal, [1, 2]) == [1, 0.5]


def test_an_interrupt_ends_the_workers_and_the_next_map_starts_others(pair):
    before = set(pair.map(clear, [[1], [2]])) - {os.getpid()}
    # A shell may have started the tests in its background, where the signal is ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pair.map(time.sleep, [60, 60])
    finally:
        signal.signal(signal.SIGINT, handler)
    assert time.monotonic() - started < 30
    after = set(pair.map(clear, [[1], [2]])) - {os.getpid()}
    assert len(after) == 1 and after != before


def test_a_lost_worker_ends_the_map_and_the_next_one_starts_others(pair):
    (other,) = set(pair.map(clear, [[1], [2]])) - {os.getpid()}
    threading.Timer(0.5, os.kill, (other, signal.SIGKILL)).start()
    with pytest.raises(uni.PeerLost, match="map of 'sleep'"):
        pair.map(time.sleep, [1, 60])
    assert pair.map(abs, [-1, -2]) == [1, 2]


def test_workers_that_were_closed_are_started_again():
    with uni.local(2) as pair:
        assert pair.map(abs, [-1]) == [1]
    with uni.local(2) as other:
        with pytest.raises(functions.errors.Inactive, match="there are others"):
            pair.map(abs, [-1])
        assert other.map(abs, [-1]) == [1]
    assert pair.map(abs, [-2]) == [2]
    functions.close()


def test_progress_is_shown_if_it_takes_long(pair, capsys):
    pair.map(time.sleep, [0.2] * 10, progress=True)
    shown = capsys.readouterr().err
    assert " of 10 items" in shown and "s left" in shown and shown.endswith("done                \n")
    pair.map(abs, range(10), progress=True)
    pair.map(time.sleep, [0.4] * 4)  # standard error is no terminal here
    assert capsys.readouterr().err == ""
