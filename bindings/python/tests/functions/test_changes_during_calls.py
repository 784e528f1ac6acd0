"""Changes made by calls and by other threads, and objects that no function uses any longer."""

import collections
import sys
import threading
import types

import numpy as np
import pytest

from unisono import functions


class Counter:
    """Changes itself in every way that code can."""

    def __init__(self):
        self.seen, self.history, self.by_rows, self.rate = 0, [], collections.OrderedDict(), 1

    def __call__(self, x):
        self.seen += len(x)
        self.history.append(len(x))
        self.by_rows[len(x)] = self.seen
        self.by_rows.move_to_end(len(x))
        return np.array([self.rate * self.seen, sum(self.history), sum(self.by_rows.values())])


def test_changes_by_calls_in_the_master_reach_workers(pair):
    counter, x = Counter(), functions.data(np.ones(3))
    f = functions.function(counter, "gather", name="f")
    look = functions.function(lambda: np.array([counter.seen, len(counter.history)]), "gather")
    with pytest.warns(UserWarning, match=r"'f' changed 'Counter.seen'"):
        assert f(x).tolist() == [1, 1, 1, 2, 2, 2]
    assert f(x).tolist() == [2, 2, 2, 3, 3, 4]
    assert look().tolist() == [2, 2, 2, 2]
    counter.rate = 10
    assert f(x).tolist() == [30, 3, 3, 40, 4, 6] and look().tolist() == [3, 3, 3, 3]
    counter.seen = 0
    assert f(x).tolist() == [10, 4, 1, 20, 5, 5]
    counter.history.clear()
    assert f(x).tolist() == [20, 1, 2, 30, 2, 4]
    counter.seen = 5
    f.alone(x.data)
    assert f(x).tolist()[3] == 10 * (5 + 3 + 2), "a run in the master alone is a change too"


def test_closure_variables_that_functions_share_are_shared_on_workers(pair):
    count = 1

    def add():
        nonlocal count
        count += 1

    def use(x):
        nonlocal count
        count = 0
        add()
        return x.sum() * count

    assert functions.function(use, "sum")(functions.data(np.ones(4))) == 4


def test_a_value_restored_after_another_function_was_sent(pair):
    """Objects shared by functions on a worker have the master's values, whichever function was sent last."""

    class Settings:
        rate = 1

    x = functions.data(np.ones(4))
    f = functions.function(lambda x: x.sum() * Settings.rate, "sum")
    g = functions.function(lambda x: -x.sum() * Settings.rate, "sum")
    assert f(x) == 4 and g(x) == -4
    Settings.rate = 2
    assert f(x) == 8
    Settings.rate = 1
    assert g(x) == -4 and f(x) == 4


loss = threading.Lock()


def test_attributes_with_the_names_of_globals_are_not_captured(pair):
    named = types.SimpleNamespace(loss=2)
    assert functions.function(lambda x: x.sum() * named.loss, "sum")(functions.data(np.ones(4))) == 8


def test_refresh_sends_a_function_again(pair):
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0, momentum=0.5)

    def step(x):
        parameter.grad = x.sum()[None]
        optimizer.step()

    f, x = functions.function(step, shareds=[parameter]), functions.data(np.array([1.0, 2], "float32"))
    f(x)
    optimizer.state.clear()
    functions.refresh(f)
    before = functions.gather(parameter)
    f(x)
    assert (functions.gather(parameter) - before).ravel().tolist() == [-1, -2], "no momentum is left"


def test_a_change_that_another_thread_makes_during_a_call_is_not_lost(pair):
    options, inside, go_on = types.SimpleNamespace(), threading.Event(), threading.Event()
    options.rate, named, rank = 1, {"shift": 0}, functions.rank()

    def slow(x):
        if functions.rank() == rank and threading.current_thread() is not threading.main_thread():
            sys.modules[__name__].EVENTS[0].set()
            assert sys.modules[__name__].EVENTS[1].wait(60)
        return x.sum() * options.rate + named["shift"]

    EVENTS[:] = [inside, go_on]
    x, f = functions.data(np.ones(4)), functions.function(slow, "sum")
    assert f(x) == 4
    thread = threading.Thread(target=f, args=(x,), daemon=True)
    thread.start()
    assert inside.wait(60)
    options.rate, named["shift"] = 5, 1
    go_on.set()
    thread.join(60)
    assert f(x) == 22


EVENTS = []


def test_objects_that_no_function_uses_any_more_are_dropped(pair):
    x, held = functions.data(np.ones(2)), [0]
    f = functions.function(lambda x: x.sum() * held[0], "sum")
    count = functions.function(lambda: np.array([_objects()]), "gather")
    before = count()
    for number in range(1500):
        held = [number]
        assert f(x) == 2 * number
    assert max(count() - before) < 1300
    held[0] = 7
    assert f(x) == 14


def _objects():
    """Counts the objects that this process keeps, including those of pools that other tests have closed."""
    import gc

    from unisono.functions.variables import Registry

    gc.collect()
    return sum(len(one.objects) for one in gc.get_objects() if type(one) is Registry)


class Copied:
    """Creates new objects for its contents in every pickle."""

    def __init__(self, rows):
        self.rows = rows

    def __reduce__(self):
        return Copied, (list(self.rows),)


def test_contents_behind_methods_and_custom_pickling_are_captured(pair):
    table, rows, fixed = {"k": 1}, Copied([1]), np.full(3, 1.0)
    fixed.setflags(write=False)
    look_up, x = table.get, functions.data(np.ones(4))
    f = functions.function(lambda x: x.sum() * look_up("k") * sum(rows.rows) * fixed[0], "sum", name="f")
    assert f(x) == 4
    table["k"] = 2
    assert f(x) == 8
    rows.rows.append(2)
    assert f(x) == 24
    fixed.setflags(write=True)
    fixed[:] = 3
    assert f(x) == 72


def test_a_function_that_cannot_be_sent_does_not_fail_the_call_of_another(pair):
    lock, x = threading.Lock(), functions.data(np.ones(4))
    bad = functions.function(lambda x: lock.locked() + x.sum(), "sum", name="bad")
    good = functions.function(lambda x: x.sum(), "sum", name="good")
    assert good(x) == 4
    with pytest.raises(TypeError, match="'bad' uses 'lock'"):
        bad(x)


# The last test: every later call of these workers would compare the array.
def test_large_arrays_are_named_in_a_warning(pair):
    big, x = np.zeros(9 << 20), functions.data(np.ones(2))
    f = functions.function(lambda x: x.sum() + big[0], "sum", name="f")
    with pytest.warns(UserWarning, match=r"'f' captures arrays of 72 MiB.*setflags"):
        assert f(x) == 2
    big.setflags(write=False)
    assert functions.function(lambda x: x.sum() + big[0], "sum")(x) == 2
