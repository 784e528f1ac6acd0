"""Changes between two calls reach the workers with the next one, or raise an error that names them.

Each case creates something that a function uses, and changes it step by step. After each step the result must
equal the master's own. A step that must fail is a pair of the change and words of the error.
"""

import collections
import dataclasses
import enum
import functools
import importlib
import sys
import threading
import types

import numpy as np
import pytest

from unisono import functions


class Plain:
    """Holds a value."""


class Base:
    """Has an attribute and a method."""

    rate = 2

    def go(self):
        return 3


class Derived(Base):
    """Has the attributes of its base until it gets its own."""


def attributes():
    one = Plain()

    def replace():
        one.__dict__ = {"scale": 11}

    def become():
        one.__class__ = type("Other", (Plain,), {"scale": 13})

    return lambda: getattr(one, "scale", 5), [
        lambda: setattr(one, "scale", 2),
        lambda: delattr(one, "scale"),
        lambda: setattr(one, "scale", 7),
        (lambda: setattr(one, "scale", threading.Lock()), r"uses 'Plain.scale' \(lock\)"),
        lambda: setattr(one, "scale", True),
        replace,
        lambda: one.__dict__.clear(),
        become,
    ]


def classes():
    kind = type("Own", (Derived,), {})
    one = kind()
    return lambda: one.rate * one.go() * getattr(kind, "extra", 1), [
        lambda: setattr(kind, "rate", 5),
        lambda: setattr(kind, "rate", 7),
        lambda: delattr(kind, "rate"),
        lambda: setattr(kind, "go", lambda self: 11),
        lambda: setattr(kind, "go", staticmethod(lambda: 13)),
        lambda: delattr(kind, "go"),
        lambda: setattr(kind, "extra", property(lambda self: 17) and 17),
        (lambda: setattr(kind, "extra", threading.Lock()), r"uses 'Own.extra' \(lock\)"),
        lambda: delattr(kind, "extra"),
        lambda: setattr(kind, "__bases__", (type("Other", (Base,), {"rate": 19}),)),
    ]


def imported_classes():
    one = Derived()

    def restore():
        Base.rate, Base.go = 2, go
        del Derived.go

    go = Base.go
    return lambda: one.rate * one.go(), [
        lambda: setattr(Base, "rate", 5),
        lambda: setattr(Base, "go", lambda self: 7),
        lambda: setattr(Derived, "rate", 11),
        lambda: setattr(Derived, "go", lambda self: 13),
        lambda: delattr(Derived, "rate"),
        restore,
    ]


def properties():
    kind = type("Own", (), {"rate": property(lambda self: self._rate)})
    one = kind()
    one._rate = 2
    return lambda: one.rate, [
        lambda: setattr(one, "_rate", 3),
        lambda: setattr(kind, "rate", property(lambda self: self._rate * 5)),
        lambda: (delattr(kind, "rate"), setattr(one, "rate", 7)),
    ]


class Slots:
    """Has slots instead of a dictionary."""

    __slots__ = ("rate",)


@dataclasses.dataclass
class Record:
    """An ordinary dataclass."""

    rate: float


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """Defines its own pickling."""

    rate: float


def slots_and_dataclasses():
    slots, record, fixed = Slots(), Record(2), Fixed(3)
    return lambda: getattr(slots, "rate", 1) * record.rate * fixed.rate, [
        lambda: setattr(slots, "rate", 5),
        lambda: delattr(slots, "rate"),
        lambda: setattr(record, "rate", 7),
        lambda: object.__setattr__(fixed, "rate", 11),
        (lambda: setattr(slots, "rate", threading.Lock()), r"'Slots.rate' \(lock\)"),
        lambda: setattr(slots, "rate", 2),
    ]


class Stateful:
    """Omits an attribute when it is pickled."""

    def __init__(self):
        self.rate, self.lock = 2, threading.Lock()

    def __getstate__(self):
        return {"rate": self.rate}

    def __setstate__(self, state):
        self.__init__()
        self.rate = state["rate"]


class Made:
    """Is unpickled by calling its class with arguments."""

    def __init__(self, rate):
        self.rate, self.note = rate, None

    def __reduce__(self):
        return Made, (self.rate,)


def objects_that_define_their_pickling():
    stateful, made = Stateful(), Made(3)
    holder = Plain()
    holder.made = made
    return lambda: stateful.rate * holder.made.rate, [
        lambda: setattr(stateful, "rate", 5),
        lambda: setattr(stateful, "lock", threading.Lock()),
        lambda: setattr(made, "note", "not sent"),
        lambda: setattr(made, "rate", 7),
        lambda: setattr(holder, "made", Made(11)),
    ]


def containers():
    values, named, chosen = [2, [3]], {"rate": 5, "inner": {"deep": 7}}, {11}
    queue = collections.deque([2], maxlen=2)
    order = collections.OrderedDict(a=2, b=3)

    def use():
        first = 10 * next(iter(order.values()))
        return sum(values[:1]) + sum(values[1]) * named.get("rate", 1) + sum(chosen) + sum(queue) + first

    return use, [
        lambda: values.__setitem__(0, 13),
        lambda: values[1].append(17),
        lambda: values.__setitem__(1, [19]),
        lambda: values[1].clear(),
        lambda: named.update(rate=23),
        lambda: named.pop("rate"),
        lambda: chosen.add(29),
        lambda: chosen.remove(11),
        lambda: queue.extend([31, 37]),
        lambda: order.move_to_end("a"),
        (lambda: values.__setitem__(1, [threading.Lock()]), r"'list\[0\]' \(lock\)"),
        lambda: values.__setitem__(1, [1]),
    ]


def defaults_and_code():
    def helper(rate=2, *, shift=3):
        return rate * shift

    def other(rate=2, *, shift=3):
        return rate + 100 * shift

    part = functools.partial(helper, rate=5)
    held = [part]
    return lambda: helper() * held[0]() * getattr(helper, "factor", 1), [
        lambda: setattr(helper, "__defaults__", (7,)),
        lambda: helper.__kwdefaults__.update(shift=11),
        lambda: setattr(helper, "__kwdefaults__", {"shift": 13}),
        lambda: part.keywords.update(rate=17),
        lambda: held.__setitem__(0, functools.partial(helper, rate=19)),
        lambda: setattr(helper, "factor", 23),
        lambda: delattr(helper, "factor"),
        lambda: setattr(helper, "__code__", other.__code__),
        (lambda: setattr(helper, "factor", threading.Lock()), r"'helper.factor' \(lock\)"),
        lambda: setattr(helper, "factor", 2),
    ]


def closures():
    rate, helper = 2, lambda: 3

    def change(value=None, other=None):
        nonlocal rate, helper
        rate, helper = value or rate, other or helper

    return lambda: rate * helper(), [
        lambda: change(5),
        lambda: change(other=lambda: rate + 7),
        lambda: change(-0.0),
        (lambda: change(threading.Lock()), r"uses 'rate' \(lock\)"),
        lambda: change(11),
    ]


def dispatchers():
    @functools.singledispatch
    def choose(value):
        return 2

    return lambda: choose(1.0), [
        lambda: choose.register(float, lambda value: 3),
        lambda: choose.register(float, lambda value: 5),
    ]


class Color(enum.Enum):
    """Gets a method."""

    RED = 2


def enumerations():
    kind = enum.Enum("Kind", {"RED": 2})
    return lambda: kind.RED.value * getattr(kind.RED, "factor", lambda: 1)() * Color.RED.value, [
        lambda: setattr(kind, "factor", lambda self: 3),
    ]


def arrays():
    array, part, fixed = np.ones(3), np.arange(12.0).reshape(3, 4)[:, ::2], np.ones(2)
    fixed.setflags(write=False)
    objects = np.array([2, None], object)

    def cast():
        array.dtype = "int64"

    return lambda: float(array.sum() + part.sum() * fixed.sum()) + objects[0], [
        lambda: array.__setitem__(0, 7.0),
        lambda: array.__setitem__(slice(None), array[::-1].copy()),
        lambda: part.__setitem__((1, 1), -5.0),
        lambda: setattr(array, "shape", (3, 1)),
        lambda: objects.__setitem__(0, 3),
        cast,
    ]


def tensors():
    torch = pytest.importorskip("torch")
    tensor, memory = torch.ones(3), np.ones(3)
    alias = torch.from_numpy(memory)
    return lambda: float((tensor + alias).sum()), [
        lambda: tensor.add_(1),
        lambda: tensor.mul_(3),
        lambda: memory.__setitem__(0, 5.0),
        lambda: setattr(tensor, "data", torch.zeros(3)),
    ]


def library_objects():
    counts, random = collections.Counter(a=2), __import__("random").Random(1)
    factory = collections.defaultdict(lambda: counts["a"], b=3)
    moment = [__import__("datetime").timedelta(seconds=5)]

    def use():
        state = random.getstate()
        drawn = random.randrange(1000)
        random.setstate(state)
        return counts["a"] + drawn + dict(factory)["b"] + factory.default_factory() + moment[0].seconds

    return use, [
        lambda: counts.update(a=5),
        lambda: random.seed(2),
        lambda: random.random(),
        lambda: setattr(factory, "default_factory", lambda: 100),
        lambda: factory.update(b=7),
        lambda: moment.__setitem__(0, moment[0] * 2),
    ]


def long_containers():
    values, named = list(range(5000)), {number: number for number in range(5000)}
    return lambda: values[4321] + len(values) + named[1234], [
        lambda: values.__setitem__(4321, 7),
        lambda: values.append(1),
        lambda: named.update({1234: 5}),
    ]


TOTAL = 2


def deleted_globals():
    def use():
        try:
            return TOTAL
        except NameError:
            return 5

    def delete():
        del globals()["TOTAL"]

    return use, [lambda: globals().update(TOTAL=3), delete, lambda: globals().update(TOTAL=2)]


CASES = [
    arrays,
    tensors,
    library_objects,
    long_containers,
    deleted_globals,
    attributes,
    classes,
    imported_classes,
    properties,
    slots_and_dataclasses,
    objects_that_define_their_pickling,
    containers,
    defaults_and_code,
    closures,
    dispatchers,
    enumerations,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_changes_reach_workers_or_fail(pair, case):
    use, steps = case()
    x = functions.data(np.arange(1.0, 5.0))
    f = functions.function(lambda x: x.sum() * use(), "sum")
    g = functions.function(lambda x: -x.sum() * use(), "sum")
    assert f(x) == 10 * use() and g(x) == -10 * use()
    for number, step in enumerate(steps):
        change, words = step if isinstance(step, tuple) else (step, None)
        change()
        if words is not None:
            for _ in range(2):
                with pytest.raises(TypeError, match=words):
                    f(x)
            continue
        assert f(x) == f.alone(x.data) == 10 * use(), f"step {number}"
        assert f(x) == 10 * use() and g(x) == -10 * use(), f"step {number}, once more"


MODULE = """
import threading

scale = 2.0
lock = threading.Lock()


def helper(rate=3):
    with lock:
        return rate * scale


def use():
    return helper() * Model().go()


def by_text():
    return getattr(__import__("sys").modules[__name__], "scale")


class Model:
    lock = threading.Lock()

    def go(self):
        return 5
"""


def test_patched_modules(pair, tmp_path, monkeypatch):
    """Before the first call and after it; workers import values that cannot be sent."""
    (tmp_path / "module_that_is_patched.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_that_is_patched")
    functions.function(lambda path=str(tmp_path): sys.path.insert(0, path))()
    module.helper.__defaults__ = (7,)
    module.Model.go = lambda self: 11
    x = functions.data(np.ones(4))
    f = functions.function(lambda x: x.sum() * module.use(), "sum")
    g = functions.function(lambda x: x.sum() * getattr(module, "scale"), "sum")  # noqa: B009
    assert f(x) == 4 * 2 * 7 * 11 and g(x) == 8
    module.scale = 3.0
    assert f(x) == 4 * 3 * 7 * 11 and g(x) == 12
    module.Model.go = lambda self: 13
    assert f(x) == 4 * 3 * 7 * 13
    module.helper = lambda: 17
    assert f(x) == 4 * 17 * 13
    module.Model = types.SimpleNamespace
    module.use = lambda: 19
    assert f(x) == 4 * 19
