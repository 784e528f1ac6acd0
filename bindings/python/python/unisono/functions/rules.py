"""Update rules: how gradients change parameters, over flat vectors of NumPy, PyTorch, JAX or PyTensor.

A formula takes the gradient, the rule's state and its settings. It returns the step to add to the
parameters, and the new state. If a rule counts steps, the first entry of its state is the step count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Formula = Callable[[Any, Any, list[Any], dict[str, Any]], tuple[Any, list[Any]]]
"""Takes the library, the gradient, the state and the settings.

One formula serves NumPy, PyTorch, JAX and PyTensor, where it only builds a graph. It may use arithmetic,
comparisons, `abs`, and the library's sqrt, expm1, maximum, sign and where. PyTorch's take no plain numbers,
except as values of where: use `math` for those. The step t of a rule that counts is ``state[0] + 1``, a
floating-point scalar of the library. A branch on t is a `where`, not an `if`; both of its values are
computed, so keep both finite. Settings are numbers, but `lr`, and with PyTensor any setting, may also be a
scalar of the library.
"""


@dataclass(frozen=True)
class Rule:
    """An update rule."""

    name: str
    formula: Formula
    vectors: int = 0
    """Number of state vectors, each as long as the parameters; they start as zeros."""
    counts: bool = False
    """Whether the state begins with the number of steps."""
    settings: dict[str, float] = field(default_factory=dict)
    """The settings and their defaults; a rule without a default learning rate requires one."""
    decays: bool = False
    """Whether each step shrinks the parameters by the fraction lr * weight_decay."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other names of settings, besides those of all rules."""

    def keep(self, param: Any, s: dict[str, Any]) -> Any:
        """The parameter to which the formula's step is added.

        Formulas do not take parameters, because most need none, and a flat copy of all parameters would cost
        as much as the step itself.

        Args:
            param: A parameter, of any shape.
            s: The settings.

        Returns:
            The parameter, or what remains of it after decay.
        """
        return param * (1 - s["lr"] * s["weight_decay"]) if self.decays else param

    def complete(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All settings of the rule.

        Args:
            args: Settings by position: the learning rate, then the others in the order of `settings`.
            kwargs: Settings by name or alias; `betas` is a pair.

        Returns:
            The settings by name, with defaults.

        Raises:
            TypeError: A setting is unknown, given twice or missing.
        """
        names = ["lr", *(name for name in self.settings if name != "lr")]
        given = list(zip(names, args, strict=False))
        for key, value in kwargs.items():
            if key == "betas":
                given += zip(("beta1", "beta2"), value, strict=True)
            else:
                given.append((self.aliases.get(key) or ALIASES.get(key, key), value))
        found = dict(given)
        unknown = [name for name in found if name not in names]
        if unknown or len(args) > len(names):
            raise TypeError(f"{self.name}: expected settings {names}, received {unknown or len(args)}")
        if len(found) < len(given):
            raise TypeError(
                f"{self.name}: expected each setting once, received {[name for name, _ in given]}"
            )
        settings = {**self.settings, **found}
        if "lr" not in settings:
            raise TypeError(f"{self.name}: expected a learning rate lr, received none")
        return settings


ALIASES = {"learning_rate": "lr", "epsilon": "eps"}
"""Other names of settings, for all rules."""


def _seen(library: Any, beta: Any, t: Any) -> Any:
    """Bias correction 1 - beta ** t, without cancellation in single precision for beta near 1."""
    if isinstance(beta, (int, float)):
        return -library.expm1((math.log(beta) if beta else -math.inf) * t)
    return 1 - beta**t


def _sgd(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    return -s["lr"] * g, []


def _momentum(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    velocity = s["momentum"] * state[0] - s["lr"] * g
    return velocity, [velocity]


def _nesterov(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    velocity = s["momentum"] * state[0] - s["lr"] * g
    return s["momentum"] * velocity - s["lr"] * g, [velocity]


def _adagrad(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t, total = state[0] + 1, state[1] + g * g
    rate = s["lr"] / (1 + (t - 1) * s["lr_decay"])
    return -rate * g / (library.sqrt(s["initial_accumulator_value"] + total) + s["eps"]), [t, total]


def _rmsprop(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    mean = s["alpha"] * state[0] + (1 - s["alpha"]) * (g * g)
    return -s["lr"] * g / (library.sqrt(mean) + s["eps"]), [mean]


def _adadelta(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    mean = s["rho"] * state[0] + (1 - s["rho"]) * (g * g)
    step = library.sqrt(state[1] + s["eps"]) / library.sqrt(mean + s["eps"]) * g
    return -s["lr"] * step, [mean, s["rho"] * state[1] + (1 - s["rho"]) * (step * step)]


def _moments(g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, Any, Any]:
    first = s["beta1"] * state[1] + (1 - s["beta1"]) * g
    return state[0] + 1, first, s["beta2"] * state[2] + (1 - s["beta2"]) * (g * g)


def _adam(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t, first, second = _moments(g, state, s)
    divisor = library.sqrt(second) / library.sqrt(_seen(library, s["beta2"], t)) + s["eps"]
    return -(s["lr"] / _seen(library, s["beta1"], t)) * first / divisor, [t, first, second]


def _adamax(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t, first, _ = _moments(g, state, s)
    largest = library.maximum(s["beta2"] * state[2], abs(g) + s["eps"])
    return -(s["lr"] / _seen(library, s["beta1"], t)) * first / largest, [t, first, largest]


def _lion(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    step = -s["lr"] * library.sign(s["beta1"] * state[0] + (1 - s["beta1"]) * g)
    return step, [s["beta2"] * state[0] + (1 - s["beta2"]) * g]


def _lasagne_adagrad(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    total = state[0] + g * g
    return -s["lr"] * g / library.sqrt(total + s["eps"]), [total]


def _lasagne_rmsprop(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    mean = s["rho"] * state[0] + (1 - s["rho"]) * g * g
    return -s["lr"] * g / library.sqrt(mean + s["eps"]), [mean]


def _lasagne_adam(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t, first, second = _moments(g, state, s)
    rate = s["lr"] * library.sqrt(1 - s["beta2"] ** t) / (1 - s["beta1"] ** t)
    return -rate * first / (library.sqrt(second) + s["eps"]), [t, first, second]


def _lasagne_adamax(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t, first, _ = _moments(g, state, s)
    largest = library.maximum(s["beta2"] * state[2], abs(g))
    return -s["lr"] / (1 - s["beta1"] ** t) * first / (largest + s["eps"]), [t, first, largest]


_BETAS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
_ADAM = {"lr": 0.001, **_BETAS}
_ADAMAX = {"lr": 0.002, **_BETAS}
_ADAGRAD = {"lr": 0.01, "eps": 1e-10, "lr_decay": 0.0, "initial_accumulator_value": 0.0}
_LION = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}
_ADAMW = Rule("adamw", _adam, 2, counts=True, settings={**_ADAM, "weight_decay": 0.01}, decays=True)


def _by_name(*rules: Rule) -> dict[str, Rule]:
    return {rule.name: rule for rule in rules}


RULES = _by_name(
    Rule("sgd", _sgd),
    Rule("momentum", _momentum, 1, settings={"momentum": 0.9}),
    Rule("nesterov", _nesterov, 1, settings={"momentum": 0.9}),
    Rule("adagrad", _adagrad, 1, counts=True, settings=_ADAGRAD),
    Rule("rmsprop", _rmsprop, 1, settings={"lr": 0.01, "alpha": 0.99, "eps": 1e-8}, aliases={"rho": "alpha"}),
    Rule("adadelta", _adadelta, 2, settings={"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
    Rule("adam", _adam, 2, counts=True, settings=_ADAM),
    _ADAMW,
    Rule("adamax", _adamax, 2, counts=True, settings=_ADAMAX),
    Rule("lion", _lion, 1, settings=_LION, decays=True),
)
"""The rules by name, with the formulas, names and defaults of `torch.optim` and of updaters of tables."""

LASAGNE = _by_name(
    Rule("sgd", _sgd),
    Rule("momentum", _momentum, 1, settings={"momentum": 0.9}),
    Rule("nesterov_momentum", _nesterov, 1, settings={"momentum": 0.9}),
    Rule("adagrad", _lasagne_adagrad, 1, settings={"lr": 1.0, "eps": 1e-6}),
    Rule("rmsprop", _lasagne_rmsprop, 1, settings={"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
    Rule("adadelta", _adadelta, 2, settings={"lr": 1.0, "rho": 0.95, "eps": 1e-6}),
    Rule("adam", _lasagne_adam, 2, counts=True, settings=_ADAM),
    _ADAMW,
    Rule("adamax", _lasagne_adamax, 2, counts=True, settings=_ADAMAX),
)
"""The rules of `unisono.functions.updates`, with the formulas and defaults of Lasagne, which has no adamw."""

_OTHER_NAMES = {"nesterov_momentum": "nesterov", "gradient_descent": "sgd"}


def find_rule(update_rule: Any) -> Rule:
    """The rule that a user means.

    Args:
        update_rule: A name of `RULES` or an alias of one, or a function of `unisono.functions.updates`.

    Returns:
        The rule: for a function, Lasagne's.

    Raises:
        ValueError: There is no such rule.
    """
    if isinstance(update_rule, str):
        rule = RULES.get(_OTHER_NAMES.get(update_rule, update_rule))
    else:
        rule = LASAGNE.get(getattr(update_rule, "__name__", ""))
    if rule is None:
        raise ValueError(f"update_rule: expected one of {', '.join(RULES)}, received {update_rule!r}")
    return rule


def choose(update_rule: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Rule, dict[str, Any]]:
    """The rule that a user means, and all its settings.

    Args:
        update_rule: As for `find_rule`; "sgd" with a `momentum`, and optionally `nesterov`, is another rule.
        args: As for `Rule.complete`.
        kwargs: As for `Rule.complete`.

    Returns:
        The rule and its settings.
    """
    rule, kwargs = find_rule(update_rule), dict(kwargs)
    if rule is RULES["sgd"]:
        nesterov = kwargs.pop("nesterov", False)
        if kwargs.get("momentum"):
            rule = RULES["nesterov" if nesterov else "momentum"]
        elif nesterov:
            raise TypeError("sgd: expected a momentum with nesterov, received none")
        else:
            kwargs.pop("momentum", None)
    return rule, rule.complete(args, kwargs)
