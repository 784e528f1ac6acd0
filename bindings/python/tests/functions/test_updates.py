"""Lasagne's update rules against their formulas, step by step, and momentum around other updates."""

import numpy as np
import pytest

pytensor = pytest.importorskip("pytensor")

from unisono import functions  # noqa: E402
from unisono.functions import rules, updates  # noqa: E402

P0 = [np.array([[1.0, -2.0, 3.0]]), np.array([0.5, -0.5])]


def gradients(params):
    """Returns the gradient of sum(p ** 3) / 3 + sum(p)."""
    return [p**2 + 1 for p in params]


def naive(name, steps):
    """Each rule as Lasagne has it, with its defaults, parameter by parameter."""
    params = [p.copy() for p in P0]
    a, b = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    for t in range(1, steps + 1):
        for i, g in enumerate(gradients(params)):
            p = params[i]
            if name == "sgd":
                params[i] = p - 0.1 * g
            elif name == "momentum":
                x = 0.9 * a[i] + (p - 0.1 * g)
                a[i], params[i] = x - p, x
            elif name == "nesterov_momentum":
                x = 0.9 * a[i] + (p - 0.1 * g) - p
                a[i], params[i] = x, 0.9 * x + (p - 0.1 * g)
            elif name == "adagrad":
                a[i] = a[i] + g**2
                params[i] = p - g / np.sqrt(a[i] + 1e-6)
            elif name == "rmsprop":
                a[i] = 0.9 * a[i] + 0.1 * g**2
                params[i] = p - g / np.sqrt(a[i] + 1e-6)
            elif name == "adadelta":
                a[i] = 0.95 * a[i] + 0.05 * g**2
                u = g * np.sqrt(b[i] + 1e-6) / np.sqrt(a[i] + 1e-6)
                b[i] = 0.95 * b[i] + 0.05 * u**2
                params[i] = p - u
            elif name == "adam":
                a[i], b[i] = 0.9 * a[i] + 0.1 * g, 0.999 * b[i] + 0.001 * g**2
                rate = 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
                params[i] = p - rate * a[i] / (np.sqrt(b[i]) + 1e-8)
            elif name == "adamw":
                a[i], b[i] = 0.9 * a[i] + 0.1 * g, 0.999 * b[i] + 0.001 * g**2
                root = np.sqrt(b[i] / (1 - 0.999**t))
                params[i] = p - 0.001 * 0.01 * p - 0.001 * a[i] / (1 - 0.9**t) / (root + 1e-8)
            elif name == "adamax":
                a[i], b[i] = 0.9 * a[i] + 0.1 * g, np.maximum(0.999 * b[i], np.abs(g))
                params[i] = p - 0.002 / (1 - 0.9**t) * a[i] / (b[i] + 1e-8)
    return params


RULES = ["sgd", "momentum", "nesterov_momentum", "adagrad", "rmsprop", "adadelta", "adam", "adamw", "adamax"]


def arguments(name):
    return [0.1] if name in RULES[:3] else []


@pytest.mark.parametrize("name", RULES)
def test_rules_match_their_formulas(name):
    params = [pytensor.shared(p.copy()) for p in P0]
    loss = sum((p**3).sum() / 3 + p.sum() for p in params)
    first, second, vector = getattr(updates, name)(loss, params, *arguments(name))
    write, change = pytensor.function([], updates=first), pytensor.function([], updates=second)
    for _ in range(4):
        write()
        assert vector.get_value().shape == (5,)
        change()
    for param, expected in zip(params, naive(name, 4), strict=True):
        np.testing.assert_allclose(param.get_value(), expected, rtol=1e-12)


def test_updates_keep_the_type_of_parameters():
    param = pytensor.shared(np.ones(3, "float32"))
    _, second, vector = updates.adam((param**2).sum(), [param])
    pytensor.function([], updates=second)()
    assert param.get_value().dtype == vector.get_value().dtype == np.float32


def test_every_rule_is_tested():
    assert set(RULES) == set(rules.LASAGNE)


@pytest.mark.parametrize("name", RULES)
def test_parameters_keep_their_different_types(name):
    params = [pytensor.shared(np.ones(2, dtype)) for dtype in ("float32", "float64")]
    rate = pytensor.shared(np.float64(0.1))
    _, second, _ = getattr(updates, name)(sum((p**2).sum() for p in params), params, rate)
    pytensor.function([], updates=second)()
    assert [p.get_value().dtype for p in params] == [np.float32, np.float64]


def test_momentum_around_other_updates():
    for nesterov in (False, True):
        param, untouched = pytensor.shared(np.array([1.0, -2.0])), pytensor.shared(np.array(0.0))
        pairs = [(param, param - 0.1 * (param**2 + 1)), (untouched, untouched + 1)]
        wrap = updates.apply_nesterov_momentum if nesterov else updates.apply_momentum
        step = pytensor.function([], updates=wrap(pairs, [param], momentum=0.9))
        p, v = np.array([1.0, -2.0]), np.zeros(2)
        for _ in range(3):
            step()
            new = p - 0.1 * (p**2 + 1)
            x = 0.9 * v + new
            v, p = (x - p, 0.9 * (x - p) + new) if nesterov else (x - p, x)
        np.testing.assert_allclose(param.get_value(), p, rtol=1e-12)
        assert untouched.get_value() == 3


def test_gradients_that_are_not_flat():
    params = [pytensor.shared(p.copy()) for p in P0]
    loss = sum((p**3).sum() / 3 + p.sum() for p in params)
    first, second, held = updates.sgd_nonflat(loss, params, 0.1)
    pytensor.function([], updates=first)()
    for gradient, expected in zip(held, gradients(P0), strict=True):
        np.testing.assert_allclose(gradient.get_value(), expected)
    pytensor.function([], updates=second)()
    for param, expected in zip(params, naive("sgd", 1), strict=True):
        np.testing.assert_allclose(param.get_value(), expected)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("weighted", [False, True])
def test_callables_train_by_the_same_rules(library, weighted, fork):
    """The loss does not depend on the data, so that the formulas hold on any number of workers."""
    module = pytest.importorskip(library)
    fork(2)
    x = functions.data(np.zeros((5, 1), "float32"))
    y = functions.data(np.zeros(5, "float32"))
    for name in RULES:
        if library == "torch":
            params = [module.nn.Parameter(module.tensor(p, dtype=module.float32)) for p in P0]

            def loss(x, y, params=params):
                return sum((p**3).sum() / 3 + p.sum() for p in params)

        else:
            params = [functions.shared(p.astype("float32"), f"p{i}") for i, p in enumerate(P0)]

            def loss(x, y, p0, p1):
                return sum((p**3).sum() / 3 + p.sum() for p in (p0, p1))

        train = functions.make_train_function(
            loss, params, None, None, getattr(updates, name), *arguments(name), weighted=weighted
        )
        first = train(x, y)
        np.testing.assert_allclose(first, sum((p**3).sum() / 3 + p.sum() for p in P0), rtol=1e-5)
        train(x, y)
        for param, expected in zip(params, naive(name, 2), strict=True):
            np.testing.assert_allclose(functions.gather(param), np.stack([expected] * 2), rtol=2e-4)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_parameters_may_be_a_generator(fork, library):
    """As `model.parameters()` returns them: all are trained, including the first."""
    module = pytest.importorskip(library)
    fork(2)
    if library == "torch":
        params = [module.nn.Parameter(module.zeros(1)) for _ in range(3)]
        loss, given = (lambda x: (x * sum(params)).mean()), iter(params)
    else:
        params = [functions.shared(np.zeros(1, "float32"), name) for name in ("u", "v", "w")]
        loss, given = (lambda x, u, v, w: (x * (u + v + w)).mean()), iter(params)
    step = functions.make_train_function(loss, given, learning_rate=0.5)
    step(functions.data(np.ones(4, "float32")))
    for one in params:
        assert functions.gather(one).tolist() == [[-0.5], [-0.5]]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_parameters_listed_twice_are_updated_once(fork, library):
    module = pytest.importorskip(library)
    fork(2)
    if library == "torch":
        w = module.nn.Parameter(module.zeros(1))
        loss, params = (lambda x: (x * w).mean()), [w, w]
    else:
        w = functions.shared(np.zeros(1, "float32"), "w")
        loss, params = (lambda x, w: (x * w).mean()), [w, w]
    step = functions.make_train_function(loss, params, learning_rate=0.5)
    step(functions.data(np.ones(4, "float32")))
    assert functions.gather(w).tolist() == [[-0.5], [-0.5]]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_learning_rates_change_between_steps(fork, library):
    pytest.importorskip(library)
    fork(2)
    if library == "torch":
        import torch

        weights = torch.nn.Parameter(torch.zeros(1))
        loss, params = (lambda x: (x * weights).mean()), [weights]
    else:
        weights = functions.shared(np.zeros(1, "float32"), "weights")
        loss, params = (lambda x, weights: (x * weights).mean()), [weights]
    x = functions.data(np.ones(4, "float32"))
    step = functions.make_train_function(loss, params, None, None, "sgd", learning_rate=0.5)
    step(x)
    assert step.learning_rate == 0.5
    step.learning_rate = 0.25
    step(x)
    np.testing.assert_allclose(functions.gather(weights), [[-0.75], [-0.75]])
    rate = functions.shared(np.float32(1.0), "rate")
    step = functions.make_train_function(loss, params, None, None, "momentum", rate)
    rows = step.build_inputs(np.ones(4, "float32"))
    step(rows)
    functions.broadcast(rate, np.float32(0.0))
    step(rows)
    np.testing.assert_allclose(functions.gather(weights), [[-2.65], [-2.65]], rtol=1e-6)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_parameters_of_half_precision(fork, library):
    """NumPy has no bfloat16: gradients are summed in float32, and parameters keep their type."""
    module = pytest.importorskip(library)
    fork(2)
    if library == "torch":
        weights = module.nn.Parameter(module.zeros(2, dtype=module.bfloat16))
        loss, params = (lambda x: (x.bfloat16() * weights).float().mean()), [weights]
    else:
        weights = functions.shared(module.numpy.zeros(2, "bfloat16"), "weights")
        loss, params = (lambda x, weights: (x * weights.astype("float32")).mean()), [weights]
    x = functions.data(np.ones((4, 2), "float32"))
    step = functions.make_train_function(loss, params, None, None, "sgd", learning_rate=0.5)
    for _ in range(2):
        assert np.isfinite(step(x))
    here = weights if library == "torch" else weights.value
    assert "bfloat16" in str(here.dtype)
    found = here.detach().float().numpy() if library == "torch" else np.asarray(here, "float32")
    np.testing.assert_allclose(found, [-0.5, -0.5])
    np.testing.assert_allclose(step(x), -0.5)


def test_frozen_parameters_do_not_change(fork):
    torch = pytest.importorskip("torch")
    fork(2)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    step = functions.make_train_function(lambda x: model(x).mean(), model, None, None, "adam", 0.1)
    step(functions.data(np.ones((4, 2), "float32")))
    assert (model[0].weight == before).all()
    bias = functions.gather(model[1].bias)
    assert bias[0] == bias[1]


SETTINGS = {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.5}
ROWS = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")
TARGETS = ROWS @ np.array([1, 2, 3], "float32") + 4
START = [np.array([3.0, -1.0, 0.5], "float32"), np.array([2.0], "float32")]


def adamw_alone(steps):
    """Computes AdamW on the squared error of a line, in one process, in double precision."""
    weights, bias = (one.astype("float64") for one in START)
    first, second = np.zeros(4), np.zeros(4)
    for t in range(1, steps + 1):
        error = ROWS @ weights + bias - TARGETS
        g = 2 * np.append(ROWS.T @ error, error.sum()) / len(ROWS)
        first, second = 0.8 * first + 0.2 * g, 0.9 * second + 0.1 * g**2
        step = 0.05 * first / (1 - 0.8**t) / (np.sqrt(second / (1 - 0.9**t)) + 1e-6)
        weights = weights * (1 - 0.05 * 0.5) - step[:3]
        bias = bias * (1 - 0.05 * 0.5) - step[3:]
    return weights, bias


def adamw_of(library):
    """Returns the parameters and a training step of the same model in a library."""
    start = [one.copy() for one in START]
    if library == "numpy":
        return numpy_adamw(start)
    x = y = None
    if library == "torch":
        import torch

        weights, bias = params = [torch.nn.Parameter(torch.from_numpy(one)) for one in start]

        def loss(x, y):
            return ((x @ weights + bias - y) ** 2).mean()

    elif library == "jax":
        params = [functions.shared(one, name) for one, name in zip(start, ["weights", "bias"], strict=True)]

        def loss(x, y, weights, bias):
            return ((x @ weights + bias - y) ** 2).mean()

    else:
        x, y = pytensor.tensor.fmatrix("x"), pytensor.tensor.fvector("y")
        weights, bias = params = [pytensor.shared(one) for one in start]
        loss = ((x @ weights + bias[0] - y) ** 2).mean()
    return params, functions.make_train_function(loss, params, x, y, "adamw", weighted=True, **SETTINGS)


def numpy_adamw(start):
    """NumPy has no gradients: the callables compute theirs, and use the rule."""
    weights, bias = params = [functions.shared(start[0], "weights"), functions.shared(start[1], "bias")]
    vector = functions.shared(np.zeros(5, "float32"), "vector")
    state = [functions.shared(np.zeros(shape, "float32"), f"state_{i}") for i, shape in enumerate([(), 4, 4])]

    def gradient(x, y, weights, bias, vector):
        error = x @ weights + bias - y
        rows = np.array([len(x)], "float32")
        return functions.updated(
            (error**2).mean(), vector=np.concatenate([2 * x.T @ error, 2 * error.sum(keepdims=True), rows])
        )

    def apply(weights, bias, vector, state_0, state_1, state_2):
        rule = rules.RULES["adamw"]
        step, new = rule.formula(np, vector[:-1] / vector[-1], [state_0, state_1, state_2], SETTINGS)
        kept = rule.keep(weights, SETTINGS), rule.keep(bias, SETTINGS)
        return functions.updated(
            weights=kept[0] + step[:3],
            bias=kept[1] + step[3:],
            **{f"state_{i}": np.asarray(one, "float32") for i, one in enumerate(new)},
        )

    first = functions.function(gradient, "avg", updates=[vector], shareds=params, weighted=True)
    second = functions.function(apply, updates=[weights, bias, *state], shareds=[vector])

    def step(x, y):
        value = first(x, y)
        functions.all_reduce(vector, "sum")
        second()
        return value

    return params, step


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "pytensor"])
def test_adamw_on_two_workers_equals_one_process(library, fork):
    """Seven rows, so that the workers have different numbers of rows."""
    pytest.importorskip(library)
    fork(2)
    params, step = adamw_of(library)
    x, y = functions.data(ROWS), functions.data(TARGETS)
    for _ in range(5):
        step(x, y)
    for param, expected in zip(params, adamw_alone(5), strict=True):
        np.testing.assert_allclose(functions.gather(param), np.stack([expected] * 2), rtol=1e-4)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_adamw_decays_by_the_current_learning_rate(library, fork):
    """If the gradient is zero, a step consists of the decay only."""
    module = pytest.importorskip(library)
    fork(2)
    if library == "torch":
        w = module.nn.Parameter(module.ones(2))
        loss, params = (lambda x: (0 * w).sum() + x.mean()), [w]
    else:
        w = functions.shared(np.ones(2, "float32"), "w")
        loss, params = (lambda x, w: (0 * w).sum() + x.mean()), [w]
    step = functions.make_train_function(
        loss, params, update_rule="adamw", learning_rate=0.5, weight_decay=0.5
    )
    x = functions.data(np.ones(4, "float32"))
    step(x)
    step.learning_rate = 1.0
    step(x)
    np.testing.assert_allclose(functions.gather(w), np.full((2, 2), 0.75 * 0.5), rtol=1e-6)


def test_synkhronos_takes_lasagnes_rule_by_name_too(fork):
    """By name, `unisono.functions` has the rules of torch.optim, whose adagrad is another one."""
    from synkhronos.extensions import train

    fork(2)
    found = {}
    for name, make in (("lasagne", train.make_train_function), ("torch", functions.make_train_function)):
        x, weights = pytensor.tensor.dvector(), pytensor.shared(np.zeros(1))
        step = make((x.mean() * weights).sum(), [weights], x, None, "adagrad")
        step(functions.data(np.full(4, 2.0)))
        found[name] = weights.get_value()[0]
    np.testing.assert_allclose(found["lasagne"], -2 / np.sqrt(4 + 1e-6), rtol=1e-12)
    np.testing.assert_allclose(found["torch"], -0.01, rtol=1e-9)
