"""The updaters' formulas in double precision, on NumPy arrays: the reference for tables on a device."""

import numpy as np

DEFAULTS = {
    "add": {},
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9},
    "adagrad": {"lr": 0.01, "eps": 1e-10, "lr_decay": 0.0, "initial_accumulator_value": 0.0},
    "rmsprop": {"lr": 0.01, "alpha": 0.99, "eps": 1e-8},
    "adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6},
    "adam": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    "adamw": {"lr": 0.001, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
    "adamax": {"lr": 0.002, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    "lion": {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
    "ftrl": {"alpha": 0.1, "beta": 1.0, "lambda1": 0.0, "lambda2": 0.0},
    "dcasgd": {"lr": 0.01, "lambda_": 0.1},
    "dcasgda": {"lr": 0.01, "lambda_": 0.1, "momentum": 0.95, "eps": 1e-7},
    "multiverso_adagrad": {"lr": 0.01, "rho": 0.1, "eps": 1e-6},
    "multiverso_momentum": {"momentum": 0.9},
}

OWN = ("multiverso_adagrad", "dcasgd", "dcasgda")
"""Updaters that keep state for each worker."""


class Reference:
    """A table with rows, its updater's state, and the update count of each row."""

    def __init__(self, values, updater, workers, **options):
        self.values = np.array(values, dtype="float64")
        self.updater = updater
        self.options = {**DEFAULTS[updater], **options}
        copies = workers if updater in OWN else 1
        self.state = np.zeros((copies, 2, *self.values.shape))
        self.seen = np.zeros((copies, *self.values.shape), dtype=bool)
        self.steps = np.zeros(len(self.values), dtype=int)

    def add(self, delta, rows=None, worker=0):
        """Updates listed rows, one after the other; without a list, all of them."""
        worker = worker if self.updater in OWN else 0
        rows = range(len(self.values)) if rows is None else rows
        for row, change in zip(rows, np.asarray(delta, dtype="float64"), strict=True):
            self.steps[row] += 1
            state = self.state[worker, :, row]
            self.values[row] = getattr(self, "_" + self.updater)(self.values[row], state, change, row, worker)

    def _add(self, w, state, delta, row, worker):
        return w + delta

    def _sgd(self, w, state, delta, row, worker):
        return w - delta

    def _momentum(self, w, state, delta, row, worker):
        state[0] = self.options["momentum"] * state[0] + delta
        return w - state[0]

    def _multiverso_momentum(self, w, state, delta, row, worker):
        m = self.options["momentum"]
        state[0] = m * state[0] + (1 - m) * delta
        return w - state[0]

    def _nesterov(self, w, state, delta, row, worker):
        m = self.options["momentum"]
        state[0] = m * state[0] + delta
        return w - (m * state[0] + delta)

    def _adagrad(self, w, state, g, row, worker):
        o = self.options
        rate = o["lr"] / (1 + (self.steps[row] - 1) * o["lr_decay"])
        state[0] += g * g
        return w - rate * g / (np.sqrt(o["initial_accumulator_value"] + state[0]) + o["eps"])

    def _multiverso_adagrad(self, w, state, delta, row, worker):
        o = self.options
        g = delta / o["lr"]
        state[0] += g * g
        return w - o["rho"] * g / np.sqrt(state[0] + o["eps"])

    def _rmsprop(self, w, state, g, row, worker):
        o = self.options
        state[0] = o["alpha"] * state[0] + (1 - o["alpha"]) * g * g
        return w - o["lr"] * g / (np.sqrt(state[0]) + o["eps"])

    def _adadelta(self, w, state, g, row, worker):
        o = self.options
        state[0] = o["rho"] * state[0] + (1 - o["rho"]) * g * g
        step = np.sqrt(state[1] + o["eps"]) / np.sqrt(state[0] + o["eps"]) * g
        state[1] = o["rho"] * state[1] + (1 - o["rho"]) * step * step
        return w - o["lr"] * step

    def _adam(self, w, state, g, row, worker):
        o, t = self.options, self.steps[row]
        state[0] = o["beta1"] * state[0] + (1 - o["beta1"]) * g
        state[1] = o["beta2"] * state[1] + (1 - o["beta2"]) * g * g
        mean, square = state[0] / (1 - o["beta1"] ** t), state[1] / (1 - o["beta2"] ** t)
        return w - o["lr"] * mean / (np.sqrt(square) + o["eps"])

    def _adamw(self, w, state, g, row, worker):
        o = self.options
        return self._adam(w - o["lr"] * o["weight_decay"] * w, state, g, row, worker)

    def _adamax(self, w, state, g, row, worker):
        o, t = self.options, self.steps[row]
        state[0] = o["beta1"] * state[0] + (1 - o["beta1"]) * g
        state[1] = np.maximum(o["beta2"] * state[1], np.abs(g) + o["eps"])
        return w - o["lr"] / (1 - o["beta1"] ** t) * state[0] / state[1]

    def _lion(self, w, state, g, row, worker):
        o = self.options
        direction = np.sign(o["beta1"] * state[0] + (1 - o["beta1"]) * g)
        state[0] = o["beta2"] * state[0] + (1 - o["beta2"]) * g
        return w - o["lr"] * (direction + o["weight_decay"] * w)

    def _ftrl(self, w, state, g, row, worker):
        o = self.options
        before, state[1] = np.sqrt(state[1]), state[1] + g * g
        after = np.sqrt(state[1])
        state[0] += g - (after - before) / o["alpha"] * w
        z = state[0]
        shrunk = np.sign(z) * np.maximum(np.abs(z) - o["lambda1"], 0)
        weight = -shrunk / ((o["beta"] + after) / o["alpha"] + o["lambda2"])
        return np.where(state[1] == 0, w, weight)

    def _dcasgd(self, w, state, delta, row, worker):
        o = self.options
        missed = np.where(self.seen[worker, row], w - state[0], 0)
        w = w - (delta + o["lambda_"] / o["lr"] * delta * delta * missed)
        state[0], self.seen[worker, row] = w, True
        return w

    def _dcasgda(self, w, state, delta, row, worker):
        o = self.options
        g = delta / o["lr"]
        state[1] = o["momentum"] * state[1] + (1 - o["momentum"]) * g * g
        missed = np.where(self.seen[worker, row], w - state[0], 0)
        w = w - (delta + o["lambda_"] / np.sqrt(state[1] + o["eps"]) * delta * g * missed)
        state[0], self.seen[worker, row] = w, True
        return w
