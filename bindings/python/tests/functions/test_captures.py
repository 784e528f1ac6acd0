"""Values that functions use besides their inputs: workers have those of the master."""

import dataclasses
import functools
import importlib
import sys
import threading
import types

import numpy as np
import pytest

from unisono import functions

LIBRARY = """
import threading
import types
import torch
import helper_of_library

model = torch.nn.Linear(3, 1)
scale = 1.0
lock = threading.Lock()
settings = {"models": [model]}


def loss(x, y):
    with lock:
        return torch.nn.functional.mse_loss(scale * model(x).squeeze(1), y)


def through_helper(x):
    return helper_of_library.predict(x)


def with_default(x, weights=model):
    return weights(x).detach()


def in_a_list(x):
    return settings["models"][0](x).detach()


def imports_inside(x):
    import helper_of_library

    return helper_of_library.predict(x)


@torch.no_grad()
def decorated(x):
    return model(x)


class Predictor:
    model = model

    def __call__(self, x):
        return self.model(x).detach()


predictor = Predictor()


def with_predictor(x):
    return predictor(x)
"""

HELPER = """
import torch

inner = torch.nn.Linear(3, 1)


def predict(x):
    return inner(x).detach()
"""


@pytest.fixture
def library(tmp_path, monkeypatch, fork):
    """A module whose models every importing process creates for itself."""
    pytest.importorskip("torch")
    (tmp_path / "library_of_models.py").write_text(LIBRARY)
    (tmp_path / "helper_of_library.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    fork(3)
    yield importlib.import_module("library_of_models")
    for name in ("library_of_models", "helper_of_library"):
        sys.modules.pop(name, None)


def rows():
    return np.random.default_rng(0).normal(size=(7, 3)).astype("float32")


def test_models_of_imported_modules_have_the_masters_values(library):
    import torch

    x = functions.data(rows())
    expected = library.model(torch.from_numpy(rows())).detach()
    for used in ("with_default", "in_a_list", "decorated", "with_predictor", "predictor"):
        f = functions.function(getattr(library, used), "gather", framework="torch")
        np.testing.assert_allclose(f(x), expected, rtol=1e-5, err_msg=used)
    f = functions.function(lambda x: library.model(x).detach(), "gather", framework="torch")
    np.testing.assert_allclose(f(x), expected, rtol=1e-5)
    expected = library.helper_of_library.predict(torch.from_numpy(rows()))
    for used in (library.through_helper, library.imports_inside):
        f = functions.function(used, "gather", framework="torch")
        np.testing.assert_allclose(f(x), expected, rtol=1e-5)


def test_functions_created_in_a_module_share_its_models(library):
    """First a function that is sent by value, then one that workers import."""
    exec("made = [lambda x: model(x).detach()]", vars(library))
    x = functions.data(rows())
    first = functions.function(library.made[0], "gather", framework="torch")
    before = first(x)
    second = functions.function(library.decorated, "gather", framework="torch")
    np.testing.assert_array_equal(second(x), before)
    library.model = type(library.model)(3, 1)
    np.testing.assert_array_equal(second(x), first(x))
    assert not np.allclose(first(x), before)


def test_training_a_model_of_an_imported_module(library):
    import torch

    twin = torch.nn.Linear(3, 1)
    twin.load_state_dict(library.model.state_dict())
    step = functions.make_train_function(
        library.loss, library.model, update_rule="sgd", learning_rate=0.1, weighted=True
    )
    x, y = functions.data(rows()), functions.data(rows() @ np.array([1, 2, 3], "float32"))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for number in range(12):
        library.scale = 1.0 if number < 6 else 2.0
        value = step(x, y)
        optimizer.zero_grad()
        own = twin(torch.from_numpy(rows())).squeeze(1) * library.scale
        expected = torch.nn.functional.mse_loss(own, torch.from_numpy(y.data))
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(value, expected.item(), rtol=1e-4)
    weights = functions.gather(library.model.weight)
    np.testing.assert_allclose(weights, [twin.weight.detach()] * 3, rtol=1e-4)


def test_a_model_inside_an_unpicklable_value_is_rejected_by_name(library):
    class Keeper:
        def __init__(self):
            self.model, self.lock = library.model, threading.Lock()

    library.keeper = Keeper()
    exec("def use(x): return keeper.model(x).detach()", vars(library))
    f = functions.function(library.use, "gather", framework="torch")
    with pytest.raises(TypeError, match=r"function 'use' uses 'Keeper.lock' \(lock\).*pickle"):
        f(functions.data(rows()))


scale = 1.0


def scaled(x):
    return scale * x.sum()


def test_rebound_names_reach_workers(fork, monkeypatch):
    fork(3)
    x = functions.data(np.ones(9))
    f, g = functions.function(scaled, "sum"), functions.function(lambda x: scaled(x) + 0, "sum")
    first = scale
    for value in (1.0, 10.0, 3.0):
        monkeypatch.setitem(globals(), "scale", value)
        assert f(x) == 9 * value
    assert g(x) == 27
    monkeypatch.setitem(globals(), "scale", first)
    assert g(x) == f(x) == 9, "back to the very object of before"
    monkeypatch.setitem(globals(), "scaled", lambda x: x.sum() * 100)
    assert g(x) == 900, "a helper that was redefined"


def test_closure_variables_reach_workers(fork):
    fork(3)
    x, factor = functions.data(np.ones(9)), 1.0

    def plain(x):
        return factor * x.sum()

    def negated(x):
        return -factor * x.sum()

    helper = plain
    f = functions.function(lambda x: helper(x), "sum")
    assert f(x) == 9
    factor = 10.0
    assert f(x) == 90

    helper = negated
    assert f(x) == -90


def test_every_call_starts_from_the_masters_values(fork):
    """Changes that a function makes in the master reach workers, and replace the workers' changes."""
    fork(2)
    calls = 0

    def count(x):
        nonlocal calls
        calls += len(x)
        return np.array([calls])

    f = functions.function(count, "gather")
    x = functions.data(np.ones(3))
    with pytest.warns(UserWarning, match=r"function 'count' changed 'calls' in a call.*shared variable"):
        assert f(x).tolist() == [1, 2]
    assert [f(x).tolist() for _ in range(2)] == [[2, 3], [3, 4]] and calls == 3


def test_compiled_functions_are_compiled_again(fork):
    jnp = pytest.importorskip("jax.numpy")
    fork(2)
    factor = 1.0
    f = functions.function(lambda x: factor * jnp.sum(x), "sum", framework="jax")
    x = functions.data(np.ones(4, "float32"))
    assert f(x) == 4
    factor = 3.0
    assert f(x) == 12


def test_flags_of_modules_and_settings_of_optimizers_reach_workers(fork):
    torch = pytest.importorskip("torch")
    fork(3)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    f = functions.function(lambda x: model(x).detach(), "gather", shareds=[model])
    x = functions.data(np.ones((9, 2), "float32"))
    f(x)
    model.eval()
    expected = model(torch.ones(9, 2)).detach()
    np.testing.assert_allclose(f(x), expected, rtol=1e-6)
    model.train()
    assert (f(x)[3:] == 0).any()

    def step():
        for one in model.parameters():
            one.grad = torch.ones_like(one)
        optimizer.step()

    step = functions.function(step, framework="torch")
    step()
    before = functions.gather(model[0].bias)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    step()
    np.testing.assert_array_equal(functions.gather(model[0].bias), before)
    model[0].requires_grad_(False)
    flag = functions.function(lambda: np.array([model[0].weight.requires_grad]), "gather")
    assert not flag().any()


def test_unpicklable_captures_are_named(fork):
    fork(2)
    lock, x = threading.Lock(), functions.data(np.ones(3))

    def helper(x):
        with lock:
            return x.sum()

    def outer(x):
        return helper(x)

    with pytest.raises(
        TypeError, match=r"function 'outer' uses 'lock' \(lock\).*pickle.*inside the function"
    ):
        functions.function(outer, "sum")(x)
    partial = functions.function(functools.partial(lambda x, held: x.sum(), held=lock), "sum", name="part")
    with pytest.raises(TypeError, match=r"function 'part' uses 'held' \(lock\).*pickle"):
        partial(x)
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(1, 1)
    model.lock = lock
    with pytest.raises(TypeError, match=r"'Linear.lock' \(lock\)"):
        functions.function(lambda x: model(x), "sum", framework="torch")(x)
    assert functions.function(lambda x: x.sum(), "sum")(x) == 3, "one that cannot be sent stops no other"


class Trainer:
    """Holds its own function and data."""

    def __init__(self):
        self.factor, self.x = 2.0, functions.data(np.ones(4), name="held")
        self.call = functions.function(self.compute, "sum")

    def compute(self, x):
        return self.factor * x.sum()

    def wrong(self, x):
        return x.sum() + len(self.x)


def test_objects_may_hold_their_functions_and_data(fork):
    fork(2)
    trainer = Trainer()
    assert trainer.call(trainer.x) == 8
    with pytest.raises(functions.WorkerError, match=r"data 'held' is the master's.*pass it as an input"):
        functions.function(trainer.wrong, "sum")(trainer.x)


class Options:
    """Settings of a program, and attributes that its methods assign."""

    def __init__(self):
        self.factor, self.seen, self.lock = 2.0, 0, None

    def __call__(self, x):
        self.seen += len(x)
        return np.array([self.factor * x.sum(), self.seen])


class Config:
    """A class as a list of settings."""

    rate = 1.0
    flag = True


def test_attributes_of_classes_reach_workers(fork):
    fork(2)
    config, x = Config(), functions.data(np.ones(3))
    f = functions.function(lambda x: Config.rate * x.sum() * config.flag, "sum")
    assert f(x) == 3
    try:
        Config.rate = 5.0
        assert f(x) == 15
        config.flag = False
        assert f(x) == 0
        del config.flag
        assert f(x) == 15
    finally:
        Config.rate = 1.0


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Rejects assignments."""

    factor: float


def test_objects_that_reject_assignments(fork):
    fork(2)
    fixed, x = Fixed(2.0), functions.data(np.ones(3))
    f = functions.function(lambda x: fixed.factor * x.sum(), "sum")
    assert f(x) == 6
    fixed = dataclasses.replace(fixed, factor=4.0)
    assert f(x) == 12


def test_assigned_attributes_reach_workers(fork):
    fork(2)
    options, plain = Options(), types.SimpleNamespace(inner=types.SimpleNamespace(shift=0.0))
    x = functions.data(np.ones(3))
    f = functions.function(options, "gather", name="f")
    g = functions.function(lambda x: options.factor * x.sum() + plain.inner.shift, "sum")
    with pytest.warns(UserWarning, match="'f' changed 'Options.seen'"):
        assert f(x).tolist() == [2, 1, 4, 2]
    assert g(x) == 6
    options.factor, plain.inner.shift = 10.0, 1.0
    assert f(x).tolist() == [10, 2, 20, 3], "and what methods assign in the master"
    assert g(x) == 32
    plain.inner = types.SimpleNamespace(shift=0.5)
    assert g(x) == 31
    plain.inner.shift = 0.0
    assert g(x) == 30


class Link:
    """One of many."""

    def __init__(self, next):
        self.next, self.value = next, 1.0


def test_long_chains_and_lists_of_objects(fork):
    fork(2)
    chain, x = None, functions.data(np.ones(3))
    for _ in range(3000):
        chain = Link(chain)
    links = [Link(None) for _ in range(500)]
    f = functions.function(lambda x: x.sum() * len(links) * chain.value, "sum")
    assert f(x) == 1500
    chain.value = 2.0
    assert f(x) == 3000


def test_a_value_that_becomes_unpicklable_is_rejected_until_it_is_replaced(fork):
    fork(2)
    factor, x = 1.0, functions.data(np.ones(3))
    f = functions.function(lambda x: x.sum() * (factor if isinstance(factor, float) else 0), "sum")
    assert f(x) == 3
    factor = threading.Lock()
    for _ in range(2):
        with pytest.raises(TypeError, match=r"uses 'factor' \(lock\)"):
            f(x)
    factor = 2.0
    assert f(x) == 6


class Unwelcome:
    """Cannot be unpickled on one of the ranks."""

    def __init__(self, value, rank):
        assert functions.rank() != rank, "not here"
        self.value, self.rank = value, rank

    def __reduce__(self):
        return Unwelcome, (self.value, self.rank)


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_a_change_that_one_worker_rejects_can_be_undone(fork, framework):
    pytest.importorskip(framework)
    fork(3)
    before = held = Unwelcome(1.0, None)
    f = functions.function(lambda x: x.sum() * held.value, "sum", framework=framework)
    g = functions.function(lambda x: -x.sum() * held.value, "sum", framework=framework)
    x = functions.data(np.ones(3, "float32"))
    assert f(x) == 3 and g(x) == -3
    held = Unwelcome(5.0, 2)
    with pytest.raises(functions.WorkerError, match="not here"):
        f(x)
    held = before
    assert g(x) == -3 and f(x) == 3
    box = [before]
    f = functions.function(lambda x: x.sum() * box[0].value, "sum", framework=framework)
    assert f(x) == 3
    box[0] = Unwelcome(5.0, 2)
    with pytest.raises(functions.WorkerError, match="not here"):
        f(x)
    box[0] = before
    assert f(x) == 3


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_assigned_defaults_reach_workers(fork, framework):
    pytest.importorskip(framework)
    fork(2)
    x = functions.data(np.ones(4, "float32"))

    def helper(rows, *, shift=0.0):
        return rows.sum() + shift

    def weigh(x, weight=2.0):
        return helper(x) * weight

    f = functions.function(lambda x: weigh(x), "sum", framework=framework)
    g = functions.function(lambda x: -weigh(x), "sum", framework=framework)
    assert f(x) == 8
    weigh.__defaults__ = (5.0,)
    assert f(x) == 20 and g(x) == -20
    helper.__kwdefaults__ = {"shift": 1.0}
    assert g(x) == -30 and f(x) == 30
    weigh.__defaults__ = (threading.Lock(),)
    with pytest.raises(TypeError, match="pickle"):
        f(x)
    weigh.__defaults__ = (2.0,)
    assert f(x) == 12


def test_the_sign_of_a_zero_reaches_workers(fork):
    fork(2)
    zero, turn, x = 0.0, complex(0, 0.0), functions.data(np.ones(4))
    f = functions.function(lambda x: np.copysign(1.0, zero) * np.copysign(1.0, turn.imag) * x.sum(), "sum")
    assert f(x) == 4
    zero = -0.0
    assert f(x) == -4
    turn = complex(0, -0.0)
    assert f(x) == 4
