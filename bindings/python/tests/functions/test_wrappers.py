"""Helpers wrapped by functools work on workers as they do in the master."""

import functools
import importlib
import subprocess
import sys
import threading

import numpy as np
import pytest

from unisono import functions

# A script cannot be imported: all of it is sent by value.
SCRIPT = """
import functools
import numpy as np
from unisono import functions

calls, unit = 0, 1.0


@functools.lru_cache(maxsize=7, typed=True)
def cached(value):
    global calls
    calls += 1
    return value * unit


@functools.cache
def recursive(n):
    return 1.0 if n == 0 else 1.0 + recursive(n - 1)


class Thing:
    @functools.cached_property
    def once(self):
        global calls
        calls += 1
        return 2.0 * unit

    @functools.lru_cache
    def method(self):
        return 3.0 * unit

    @functools.singledispatchmethod
    def kind(self, value):
        return 1.0

    @kind.register
    def _(self, value: float):
        return 5.0 * unit


@functools.singledispatch
def dispatch(value):
    return 1.0


@dispatch.register
def _(value: float):
    return 7.0 * unit


functions.fork(2)
thing, x, partial = Thing(), functions.data(np.ones(4)), functools.partial(recursive)


def total(helper):
    return functions.function(lambda x: x.sum() * helper(), "sum")(x)


assert total(lambda: cached(2.0)) == 8
assert total(lambda: recursive(3)) == 16
assert total(lambda: partial(1)) == 8
assert total(lambda: thing.once) == 8
assert total(lambda: thing.method()) == 12
assert total(lambda: thing.kind(1.0) + thing.kind("a")) == 24
assert total(lambda: dispatch(1.0) + dispatch("a")) == 32

counted = functions.function(lambda: np.array([cached(2.0) + cached(9.0) + thing.once, calls]), "gather")
assert counted().tolist() == [13, 3, 13, 3], counted()
size = functions.function(lambda: np.array([cached.cache_parameters()["maxsize"]]), "gather")
assert size().tolist() == [7, 7]
unit = 10.0
assert counted().tolist() == [13, 3, 13, 3]
assert total(lambda: cached(4.0)) == 160
assert total(lambda: dispatch(1.0)) == 280
print("all well")
"""


def test_helpers_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "all well\n", done.stderr


MODULE = """
import functools


@functools.cache
def cached(value):
    return value * unit


@functools.singledispatch
def dispatch(value):
    return value * unit


unit = 1.0
"""


def test_helpers_of_an_imported_module(tmp_path, monkeypatch, fork):
    (tmp_path / "module_with_caches.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_with_caches")
    try:
        fork(2)
        x = functions.data(np.ones(4))
        f = functions.function(lambda x: x.sum() * (module.cached(2.0) + module.dispatch(3.0)), "sum")
        assert f(x) == 20
        module.unit = 10.0
        assert f(x) == 4 * (2 + 30)
    finally:
        sys.modules.pop("module_with_caches", None)


def test_unpicklable_values_of_a_cached_helper_are_named(fork):
    fork(2)
    lock = threading.Lock()

    @functools.cache
    def helper():
        return lock

    f = functions.function(lambda x: x.sum() * bool(helper()), "sum")
    with pytest.raises(TypeError, match=r"uses 'lock' \(lock\)"):
        f(functions.data(np.ones(2)))
