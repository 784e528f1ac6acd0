"""The rules of functions, and torch.optim, against the cases that all implementations share."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from unisono import functions
from unisono.functions.rules import RULES, choose

FOLDER = Path(__file__).parents[4] / "tests" / "optimizers"
FILE = json.loads((FOLDER / "cases.json").read_text())
CASES = [
    pytest.param(case, id=f"{case['rule']}-{'-'.join(case['options']) or 'defaults'}")
    for case in FILE["cases"]
]
NOT_IN_TORCH = {"lion"}


def test_the_file_is_what_its_formulas_give():
    made = runpy.run_path(str(FOLDER / "cases.py"))["cases"]()
    assert {key: made[key] for key in made if key != "cases"} == {
        key: FILE[key] for key in FILE if key != "cases"
    }
    for one, other in zip(made["cases"], FILE["cases"], strict=True):
        assert (one["rule"], one["options"]) == (other["rule"], other["options"])
        np.testing.assert_allclose(one["expected"], other["expected"], rtol=1e-14, err_msg=str(one))


def test_every_rule_has_a_case_and_its_defaults():
    assert {case["rule"] for case in FILE["cases"]} == set(RULES)
    assert {name: rule.settings for name, rule in RULES.items()} == FILE["defaults"]


def compare(weights, expected, step):
    np.testing.assert_allclose(weights, expected, rtol=1e-13, atol=1e-17, err_msg=f"step {step}")


@pytest.mark.parametrize("case", CASES)
def test_torch_optim_gives_these_numbers(case):
    torch = pytest.importorskip("torch")
    name, options = case["rule"], dict(case["options"])
    if name in NOT_IN_TORCH:
        pytest.skip(f"left out: torch.optim has no {name}")
    of_torch = {"momentum": "sgd", "nesterov": "sgd"}.get(name, name)
    (optimizer,) = (
        made
        for known, made in vars(torch.optim).items()
        if known.lower() == of_torch and isinstance(made, type)
    )
    if name in ("momentum", "nesterov"):
        options = {"momentum": 0.9, "nesterov": name == "nesterov", **options}
    if "beta1" in options:
        options["betas"] = (options.pop("beta1"), options.pop("beta2"))
    weights = torch.tensor(FILE["initial"], dtype=torch.float64, requires_grad=True)
    optimizer = optimizer([weights], **options)
    for step, (gradient, expected) in enumerate(zip(FILE["gradients"], case["expected"], strict=True)):
        weights.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        compare(weights.detach().numpy(), expected, step)


def arrays(library, dtype):
    """A library, and what makes its arrays."""
    module = pytest.importorskip({"jax": "jax.numpy"}.get(library, library))
    if library == "torch":
        return module, lambda values: module.tensor(values, dtype=getattr(module, dtype))
    return module, lambda values: module.asarray(values, dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("library", "dtype"),
    [
        ("numpy", "float64"),
        ("torch", "float64"),
        ("numpy", "float32"),
        ("torch", "float32"),
        ("jax", "float32"),
    ],
)
def test_formulas_give_these_numbers(case, library, dtype):
    module, array = arrays(library, dtype)
    rule, settings = choose(case["rule"], (), case["options"])
    weights = array(FILE["initial"])
    state = ([array(0.0)] if rule.counts else []) + [array(np.zeros(len(weights)))] * rule.vectors
    for step, (gradient, expected) in enumerate(zip(FILE["gradients"], case["expected"], strict=True)):
        change, state = rule.formula(module, array(gradient), state, settings)
        weights = rule.keep(weights, settings) + change
        assert all(str(one.dtype).endswith(dtype) for one in [weights, *state])
        if dtype == "float64":
            compare(np.asarray(weights), expected, step)
        else:
            np.testing.assert_allclose(np.asarray(weights), expected, rtol=2e-6, atol=5e-8)


@pytest.mark.parametrize("case", CASES)
def test_graphs_give_these_numbers(case):
    pytensor = pytest.importorskip("pytensor")
    from unisono.functions import updates

    gradient, weights = pytensor.tensor.dvector(), pytensor.shared(np.array(FILE["initial"]))
    rule, settings = choose(case["rule"], (), case["options"])
    first, second, _ = updates.apply_rule(rule, (gradient * weights).sum(), [weights], None, settings)
    write = pytensor.function([gradient], updates=first, mode="FAST_COMPILE")
    change = pytensor.function([], updates=second, mode="FAST_COMPILE")
    for step, (given, expected) in enumerate(zip(FILE["gradients"], case["expected"], strict=True)):
        write(np.array(given))
        change()
        compare(weights.get_value(), expected, step)


def test_training_functions_give_these_numbers(fork):
    """The same numbers through make_train_function, on two workers."""
    torch = pytest.importorskip("torch")
    fork(2)
    for case in FILE["cases"]:
        weights = torch.nn.Parameter(torch.tensor(FILE["initial"], dtype=torch.float64))

        def loss(g, weights=weights):
            return (g * weights).sum() / len(g)

        step = functions.make_train_function(
            loss, [weights], update_rule=case["rule"], weighted=True, **case["options"]
        )
        for at, (gradient, expected) in enumerate(zip(FILE["gradients"], case["expected"], strict=True)):
            step(functions.data(np.array([gradient, gradient])))
            compare(weights.detach().numpy(), expected, at)


def test_settings_have_the_names_of_several_libraries():
    rule, settings = choose("sgd", (), {"lr": 0.1, "momentum": 0.5, "nesterov": True})
    assert (rule.name, settings) == ("nesterov", {"momentum": 0.5, "lr": 0.1})
    assert choose("sgd", (0.1,), {"momentum": 0.5})[0].name == "momentum"
    assert choose("sgd", (0.1,), {"momentum": 0.0})[0].name == "sgd"
    assert choose("nesterov_momentum", (0.1,), {})[0] is RULES["nesterov"]
    assert choose("gradient_descent", (), {"learning_rate": 0.1}) == (RULES["sgd"], {"lr": 0.1})
    _, settings = choose("adam", (0.1,), {"betas": (0.5, 0.6), "epsilon": 1e-3})
    assert settings == {"lr": 0.1, "beta1": 0.5, "beta2": 0.6, "eps": 1e-3}
    assert choose("rmsprop", (), {"rho": 0.5})[1]["alpha"] == 0.5
    for wrong in ({"lr": 0.1, "learning_rate": 0.2}, {"beta1": 0.5, "betas": (0.5, 0.6)}, {"rho": 0.5}):
        with pytest.raises(TypeError, match="adam: expected"):
            choose("adam", (), wrong)
    with pytest.raises(TypeError, match="momentum with nesterov"):
        choose("sgd", (0.1,), {"nesterov": True})
    with pytest.raises(TypeError, match="learning rate lr"):
        choose("sgd", (), {})
