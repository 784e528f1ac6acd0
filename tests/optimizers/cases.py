"""Ten steps of every update rule, by naive formulas in double precision, element by element.

``python tests/optimizers/cases.py`` writes `cases.json` beside this file, which the tests of all
implementations read: updaters of tables (and so experiments) in Rust, and the rules of functions in Python.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cases.json")
STEPS = 10
INITIAL = [1.0, -2.0, 0.5, 3.0, 0.0, -1e-3, 7.0]


def gradients() -> list[list[float]]:
    """Changing signs, steady, decaying, exactly zero, tiny, and very large gradients."""
    return [
        [
            math.sin(1.7 * t + 0.3),
            0.25,
            0.5**t,
            0.0 if t % 3 else -0.75,
            0.0,
            1e-12 * (t + 1),
            (-1e9 if t % 2 else 3e9) / (t + 1),
        ]
        for t in range(STEPS)
    ]


class Element:
    """One weight and its state."""

    def __init__(self, weight: float) -> None:
        self.w, self.a, self.b, self.t = weight, 0.0, 0.0, 0

    def step(self, rule: str, g: float, o: dict[str, Any]) -> float:
        """Takes one step for a gradient, and returns the weight."""
        self.t += 1
        self.w = getattr(self, "_" + rule)(g, o)
        return self.w

    def _sgd(self, g: float, o: dict[str, float]) -> float:
        return self.w - o["lr"] * g

    def _momentum(self, g: float, o: dict[str, float]) -> float:
        self.a = o["momentum"] * self.a + o["lr"] * g
        return self.w - self.a

    def _nesterov(self, g: float, o: dict[str, float]) -> float:
        self.a = o["momentum"] * self.a + o["lr"] * g
        return self.w - (o["momentum"] * self.a + o["lr"] * g)

    def _adagrad(self, g: float, o: dict[str, float]) -> float:
        self.a += g * g
        lr = o["lr"] / (1 + (self.t - 1) * o["lr_decay"])
        return self.w - lr * g / (math.sqrt(o["initial_accumulator_value"] + self.a) + o["eps"])

    def _rmsprop(self, g: float, o: dict[str, float]) -> float:
        self.a = o["alpha"] * self.a + (1 - o["alpha"]) * g * g
        return self.w - o["lr"] * g / (math.sqrt(self.a) + o["eps"])

    def _adadelta(self, g: float, o: dict[str, float]) -> float:
        self.a = o["rho"] * self.a + (1 - o["rho"]) * g * g
        u = math.sqrt(self.b + o["eps"]) / math.sqrt(self.a + o["eps"]) * g
        self.b = o["rho"] * self.b + (1 - o["rho"]) * u * u
        return self.w - o["lr"] * u

    def _adam(self, g: float, o: dict[str, float]) -> float:
        self.a = o["beta1"] * self.a + (1 - o["beta1"]) * g
        self.b = o["beta2"] * self.b + (1 - o["beta2"]) * g * g
        mean, square = self.a / (1 - o["beta1"] ** self.t), self.b / (1 - o["beta2"] ** self.t)
        return self.w - o["lr"] * mean / (math.sqrt(square) + o["eps"])

    def _adamw(self, g: float, o: dict[str, float]) -> float:
        self.w -= o["lr"] * o["weight_decay"] * self.w
        return self._adam(g, o)

    def _adamax(self, g: float, o: dict[str, float]) -> float:
        self.a = o["beta1"] * self.a + (1 - o["beta1"]) * g
        self.b = max(o["beta2"] * self.b, abs(g) + o["eps"])
        return self.w - o["lr"] / (1 - o["beta1"] ** self.t) * self.a / self.b

    def _lion(self, g: float, o: dict[str, float]) -> float:
        blend = o["beta1"] * self.a + (1 - o["beta1"]) * g
        self.a = o["beta2"] * self.a + (1 - o["beta2"]) * g
        sign = 0.0 if blend == 0 else math.copysign(1.0, blend)
        return self.w - o["lr"] * (sign + o["weight_decay"] * self.w)


ADAM = {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
DEFAULTS: dict[str, dict[str, float]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9},
    "adagrad": {"lr": 0.01, "eps": 1e-10, "lr_decay": 0.0, "initial_accumulator_value": 0.0},
    "rmsprop": {"lr": 0.01, "alpha": 0.99, "eps": 1e-8},
    "adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6},
    "adam": ADAM,
    "adamw": {**ADAM, "weight_decay": 0.01},
    "adamax": {**ADAM, "lr": 0.002},
    "lion": {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
}
"""The defaults of every rule; the learning rate of the first three is required."""

OPTIONS: list[tuple[str, dict[str, float]]] = [
    ("sgd", {"lr": 0.1}),
    ("momentum", {"lr": 0.1}),
    ("momentum", {"lr": 0.02, "momentum": 0.5}),
    ("nesterov", {"lr": 0.1}),
    ("nesterov", {"lr": 0.02, "momentum": 0.5}),
    ("adagrad", {}),
    ("adagrad", {"lr": 0.1, "eps": 1e-3, "lr_decay": 0.2, "initial_accumulator_value": 0.3}),
    ("rmsprop", {}),
    ("rmsprop", {"lr": 0.1, "alpha": 0.7, "eps": 1e-3}),
    ("adadelta", {}),
    ("adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3}),
    ("adam", {}),
    ("adam", {"lr": 0.1, "beta1": 0.5, "beta2": 0.7, "eps": 1e-3}),
    ("adam", {"beta1": 0.0, "beta2": 0.0}),
    ("adamw", {}),
    ("adamw", {"lr": 0.1, "beta1": 0.5, "beta2": 0.7, "eps": 1e-3, "weight_decay": 0.5}),
    ("adamax", {}),
    ("adamax", {"lr": 0.1, "beta1": 0.5, "beta2": 0.7, "eps": 1e-3}),
    ("lion", {}),
    ("lion", {"lr": 0.1, "beta1": 0.5, "beta2": 0.7, "weight_decay": 0.5}),
]
"""The rule and the given options of each case."""


def cases() -> dict[str, Any]:
    """All cases, with the weights after each step."""
    found = []
    for rule, given in OPTIONS:
        options = {**DEFAULTS[rule], **given}
        elements = [Element(weight) for weight in INITIAL]
        expected = [
            [element.step(rule, g, options) for element, g in zip(elements, row, strict=True)]
            for row in gradients()
        ]
        found.append({"rule": rule, "options": given, "expected": expected})
    return {"initial": INITIAL, "gradients": gradients(), "defaults": DEFAULTS, "cases": found}


def text() -> str:
    """The file: one case a line."""
    whole = cases()
    lines = ",\n".join(json.dumps(case) for case in whole.pop("cases"))
    return json.dumps(whole)[:-1] + f', "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(text())
