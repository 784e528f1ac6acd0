"""Update rules: how gradients change parameters, over flat vectors of NumPy, PyTorch, JAX or PyTensor.

A formula takes the gradient, the rule's state and its settings. It returns the step to add to the
parameters, and the new state. If a rule counts steps, the first entry of its state is the step count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Formula = Callable[[Any, Any, list[Any], dict[str, Any]], tuple[Any, list[Any]]]
"""Takes the library with sqrt and maximum, the gradient, the state and the settings."""


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
    """Whether each step shrinks the parameters by the fraction learning_rate * weight_decay."""

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
        return param - s["learning_rate"] * s["weight_decay"] * param if self.decays else param


def _sgd(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    return -s["learning_rate"] * g, []


def _momentum(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    velocity = s["momentum"] * state[0] - s["learning_rate"] * g
    return velocity, [velocity]


def _nesterov(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    velocity = s["momentum"] * state[0] - s["learning_rate"] * g
    return s["momentum"] * velocity - s["learning_rate"] * g, [velocity]


def _adagrad(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    total = state[0] + g * g
    return -s["learning_rate"] * g / library.sqrt(total + s["epsilon"]), [total]


def _rmsprop(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    mean = s["rho"] * state[0] + (1 - s["rho"]) * g * g
    return -s["learning_rate"] * g / library.sqrt(mean + s["epsilon"]), [mean]


def _adadelta(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    mean = s["rho"] * state[0] + (1 - s["rho"]) * g * g
    step = g * library.sqrt(state[1] + s["epsilon"]) / library.sqrt(mean + s["epsilon"])
    return -s["learning_rate"] * step, [mean, s["rho"] * state[1] + (1 - s["rho"]) * step * step]


def _adam(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t = state[0] + 1
    first = s["beta1"] * state[1] + (1 - s["beta1"]) * g
    second = s["beta2"] * state[2] + (1 - s["beta2"]) * g * g
    rate = s["learning_rate"] * library.sqrt(1 - s["beta2"] ** t) / (1 - s["beta1"] ** t)
    return -rate * first / (library.sqrt(second) + s["epsilon"]), [t, first, second]


def _adamax(library: Any, g: Any, state: list[Any], s: dict[str, Any]) -> tuple[Any, list[Any]]:
    t = state[0] + 1
    first = s["beta1"] * state[1] + (1 - s["beta1"]) * g
    largest = library.maximum(s["beta2"] * state[2], abs(g))
    rate = s["learning_rate"] / (1 - s["beta1"] ** t)
    return -rate * first / (largest + s["epsilon"]), [t, first, largest]


_MOMENTS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
_ADAM = {"learning_rate": 0.001, **_MOMENTS}

RULES = {
    rule.name: rule
    for rule in (
        Rule("sgd", _sgd),
        Rule("momentum", _momentum, 1, settings={"momentum": 0.9}),
        Rule("nesterov_momentum", _nesterov, 1, settings={"momentum": 0.9}),
        Rule("adagrad", _adagrad, 1, settings={"learning_rate": 1.0, "epsilon": 1e-6}),
        Rule("rmsprop", _rmsprop, 1, settings={"learning_rate": 1.0, "rho": 0.9, "epsilon": 1e-6}),
        Rule("adadelta", _adadelta, 2, settings={"learning_rate": 1.0, "rho": 0.95, "epsilon": 1e-6}),
        Rule("adam", _adam, 2, counts=True, settings=_ADAM),
        Rule("adamw", _adam, 2, counts=True, settings={**_ADAM, "weight_decay": 0.01}, decays=True),
        Rule("adamax", _adamax, 2, counts=True, settings={"learning_rate": 0.002, **_MOMENTS}),
    )
}
"""The rules, by name."""
