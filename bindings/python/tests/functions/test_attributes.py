"""Attributes that the master assigns, and those that functions assign in the master, reach workers."""

import dataclasses
import functools
import types

import numpy as np
import pytest

from unisono import functions


class Config:
    """Has a method that no function calls."""

    def __init__(self):
        self.rate = 1.0
        self.reset()

    def reset(self):
        self.shift = 0.0

    def set_rate(self, rate):
        self.rate = rate


def test_methods_that_are_not_called_assign_nothing(pair):
    config, x = Config(), functions.data(np.ones(2))
    f = functions.function(lambda x: x * config.rate + config.shift, "gather")
    assert f(x).tolist() == [1, 1]
    config.set_rate(5.0)
    assert f(x).tolist() == [5, 5]
    config.rate, config.shift = 7.0, 1.0
    assert f(x).tolist() == [8, 8]


class Plain:
    """Has a rate, which the master assigns."""

    rate = 1.0


class Counter:
    """Counts in an attribute that other classes have too."""

    rate = 0

    def count(self):
        self.rate += 1
        return self.rate


class Child(Counter):
    """Counts with the method of its base class."""

    def count(self):
        return super().count()


def test_attributes_assigned_by_methods_belong_to_their_class(pair):
    plain, counter, child, x = Plain(), Counter(), Child(), functions.data(np.ones(3))
    f = functions.function(
        lambda x: len(x) * np.array([plain.rate, counter.count(), child.count()]), "gather"
    )
    with pytest.warns(UserWarning, match="changed 'Counter'"):
        assert f(x).tolist() == [1, 1, 1, 2, 2, 2]
    plain.rate = 5.0
    assert f(x).tolist() == [5, 2, 2, 10, 4, 4]


def noted(method):
    """Decorates a method."""

    @functools.wraps(method)
    def whole(self, *args):
        return method(self, *args)

    return whole


class Decorated:
    """Assigns its own attributes in a decorated method, and in one that Python calls."""

    def __init__(self):
        self.seen, self.calls, self.rate = 0, 0, 1.0

    @noted
    def see(self, x):
        self.seen += len(x)
        return self.seen

    def __call__(self, x):
        self.calls += 1
        return np.array([self.see(x), self.calls * self.rate])


def test_decorated_methods(pair):
    decorated, plain, x = Decorated(), types.SimpleNamespace(seen=1.0), functions.data(np.ones(3))
    f = functions.function(lambda x: decorated(x) * plain.seen, "gather")
    with pytest.warns(UserWarning, match="'Decorated.seen'"):
        assert f(x).tolist() == [1, 1, 2, 1]
    plain.seen, decorated.rate = 10.0, 2.0
    assert f(x).tolist() == [20, 40, 30, 40]


def test_methods_that_a_library_calls(pair):
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.rate = 0, 1.0

        def forward(self, x):
            self.calls += len(x)
            return torch.tensor([self.calls * self.rate])

    model = Model()
    f, x = functions.function(lambda x: model(x), "gather"), functions.data(np.ones(3, "float32"))
    with pytest.warns(UserWarning, match="'Model.calls'"):
        assert f(x).tolist() == [1, 2]
    model.rate = 10.0
    assert f(x).tolist() == [20, 30]


class Slots:
    """Has slots instead of a dictionary."""

    __slots__ = ("inner", "rate")
    unit = 1.0

    def __init__(self, rate):
        self.rate = rate


@dataclasses.dataclass(slots=True)
class Record:
    """The same, created by a decorator."""

    rate: float


def test_objects_with_slots(pair):
    slots, record, x = Slots(1.0), Record(1.0), functions.data(np.ones(2))
    f = functions.function(
        lambda x: x * slots.rate * slots.unit * record.rate + getattr(slots, "inner", record).rate, "gather"
    )
    assert f(x).tolist() == [2, 2]
    slots.rate, record.rate = 3.0, 5.0
    assert f(x).tolist() == [20, 20]
    slots.inner = Slots(1.0)
    assert f(x).tolist() == [16, 16]
    slots.inner.rate = 2.0
    assert f(x).tolist() == [17, 17]
    del slots.inner
    assert f(x).tolist() == [20, 20]


class Options(dict):
    """A dictionary with attributes."""


def test_objects_in_lists_and_dictionaries(pair):
    one, two, three = Plain(), Plain(), Slots(1.0)
    held, named, options = [one], {"two": (two, [three])}, Options(rate=1.0)
    options.rate = 1.0
    x = functions.data(np.ones(2))
    f = functions.function(
        lambda x: x * held[0].rate * named["two"][0].rate * named["two"][1][0].rate * options.rate, "gather"
    )
    assert f(x).tolist() == [1, 1]
    one.rate, two.rate, three.rate, options.rate = 2.0, 3.0, 5.0, 7.0
    assert f(x).tolist() == [210, 210]


class Property:
    """Assigns through a property."""

    def __init__(self):
        self._rate = 1.0

    @property
    def rate(self):
        return self._rate

    @rate.setter
    def rate(self, value):
        self._rate = value


def test_properties(pair):
    assigned, own, x = Property(), Property(), functions.data(np.ones(3))

    def grow(x):
        own.rate = own.rate + len(x)
        return np.array([own.rate])

    f = functions.function(lambda x: x * assigned.rate, "gather")
    assert f(x).tolist() == [1, 1, 1]
    assigned.rate = 5.0
    assert f(x).tolist() == [5, 5, 5]
    g = functions.function(grow, "gather")
    with pytest.warns(UserWarning, match="'Property._rate'"):
        assert g(x).tolist() == [2, 3]
    assert [g(x).tolist() for _ in range(2)] == [[3, 4], [4, 5]]
