"""Attributes that the master assigns reach workers; those that functions assign are each worker's own."""

import dataclasses
import functools
import types

import numpy as np
import pytest

from unisono import functions
from unisono.functions.words import read


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
    """Is told a rate."""

    rate = 1.0


class Counter:
    """Counts in an attribute that others have too."""

    rate = 0

    def count(self):
        self.rate += 1
        return self.rate


class Child(Counter):
    """Counts by the method of another class."""

    def count(self):
        return super().count()


def test_what_methods_assign_belongs_to_their_class(pair):
    plain, counter, child, x = Plain(), Counter(), Child(), functions.data(np.ones(3))
    f = functions.function(
        lambda x: len(x) * np.array([plain.rate, counter.count(), child.count()]), "gather"
    )
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
    assert f(x).tolist() == [1, 1, 2, 1]
    plain.seen, decorated.rate = 10.0, 2.0
    assert f(x).tolist() == [20, 40, 40, 40]


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
    assert f(x).tolist() == [1, 2]
    model.rate = 10.0
    assert f(x).tolist() == [20, 40]


class Slots:
    """Keeps places instead of a dictionary."""

    __slots__ = ("inner", "rate")
    unit = 1.0

    def __init__(self, rate):
        self.rate = rate


@dataclasses.dataclass(slots=True)
class Record:
    """The same, made by a decorator."""

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
    told, own, x = Property(), Property(), functions.data(np.ones(3))

    def grow(x):
        own.rate = own.rate + len(x)
        return np.array([own.rate])

    f = functions.function(lambda x: x * told.rate, "gather")
    assert f(x).tolist() == [1, 1, 1]
    told.rate = 5.0
    assert f(x).tolist() == [5, 5, 5]
    g = functions.function(grow, "gather")
    assert [g(x).tolist() for _ in range(3)] == [[2, 3], [3, 5], [4, 7]]


def test_which_attributes_code_assigns():
    def method(self, other):
        self.plain = other.read
        self.counted += self.counted + other.counted
        self.first, self.second = other
        other.plain = 1
        other.sum += self.plain
        self.inner.deep = 2

        def within():
            self.late = 3

        return within

    words = read(method.__code__)
    assert words.stores == {"plain", "counted", "first", "second", "late", "sum", "deep"}
    assert not words.stores_any and read((lambda self: setattr(self, "a", 1)).__code__).stores_any
