"""Updaters of tables against torch.optim: ten steps, dense and on some rows, one by one and in rounds."""

import numpy as np
import torch

import unisono as uni

RATE = 0.05
"""The learning rate of rules whose adds are steps: the worker multiplies by it."""

CASES = [
    ("sgd", {}, torch.optim.SGD, {"lr": RATE}),
    ("momentum", {}, torch.optim.SGD, {"lr": RATE, "momentum": 0.9}),
    ("momentum", {"momentum": 0.5}, torch.optim.SGD, {"lr": RATE, "momentum": 0.5}),
    ("nesterov", {}, torch.optim.SGD, {"lr": RATE, "momentum": 0.9, "nesterov": True}),
    ("adagrad", {}, torch.optim.Adagrad, {}),
    (
        "adagrad",
        {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3},
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.3, "eps": 1e-3},
    ),
    ("rmsprop", {}, torch.optim.RMSprop, {}),
    (
        "rmsprop",
        {"lr": 0.1, "alpha": 0.7, "eps": 1e-3},
        torch.optim.RMSprop,
        {"lr": 0.1, "alpha": 0.7, "eps": 1e-3},
    ),
    ("adam", {}, torch.optim.Adam, {}),
    (
        "adam",
        {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3},
        torch.optim.Adam,
        {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3},
    ),
    ("adamw", {}, torch.optim.AdamW, {}),
    (
        "adamw",
        {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.5},
        torch.optim.AdamW,
        {"lr": 0.1, "betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.5},
    ),
    ("adamax", {}, torch.optim.Adamax, {}),
    ("adadelta", {}, torch.optim.Adadelta, {}),
    ("adadelta", {"lr": 0.5, "rho": 0.7}, torch.optim.Adadelta, {"lr": 0.5, "rho": 0.7}),
]
ROWS, COLS, STEPS = 6, 4, 10
STEPPED = ("sgd", "momentum", "nesterov")

world = uni.init()


def gradient(step, worker):
    """A gradient, as small as those of real models."""
    return np.random.default_rng(100 * step + worker).normal(size=(ROWS, COLS)) * 1e-3


def rows_of(step, worker):
    return np.random.default_rng(7 * step + worker + 1).permutation(ROWS)[: 1 + (step + worker) % 4]


class Torch:
    """One optimizer for each row: rows are updated lazily, and each has its own step count."""

    def __init__(self, optimizer, options):
        self.rows = [torch.zeros(COLS, dtype=torch.float64, requires_grad=True) for _ in range(ROWS)]
        self.optimizers = [optimizer([row], **options) for row in self.rows]

    def step(self, gradients):
        for row, gradient in gradients.items():
            self.rows[row].grad = torch.from_numpy(gradient)
            self.optimizers[row].step()

    def check(self, table, what):
        wanted = torch.stack(self.rows).detach().numpy()
        found = table.get().reshape(ROWS, COLS)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=str(what))


for updater, options, optimizer, torch_options in CASES:
    scale = RATE if updater in STEPPED else 1.0
    make = {"updater": updater, **options}

    dense, exact = uni.ArrayTable(ROWS * COLS, "float64", **make), Torch(optimizer, torch_options)
    for step in range(STEPS):
        if step % world.workers == world.worker_id:
            dense.add(scale * gradient(step, 0).ravel(), wait=True)
        uni.barrier()
        exact.step(dict(enumerate(gradient(step, 0))))
    exact.check(dense, (updater, options, "dense"))

    rows, exact = uni.MatrixTable(ROWS, COLS, "float64", **make), Torch(optimizer, torch_options)
    for step in range(STEPS):
        chosen = rows_of(step, 0)
        if step % world.workers == world.worker_id:
            rows.add(scale * gradient(step, 0)[chosen], chosen, wait=True)
        uni.barrier()
        exact.step({row: gradient(step, 0)[row] for row in chosen})
    exact.check(rows, (updater, options, "rows"))

    for consistency, divisor in (("bsp", 1), ("bsp:mean", world.workers)):
        rounds = uni.MatrixTable(ROWS, COLS, "float64", consistency=consistency, **make)
        exact = Torch(optimizer, torch_options)
        for step in range(STEPS):
            chosen = rows_of(step, world.worker_id)
            rounds.add(scale * gradient(step, world.worker_id)[chosen], chosen)
            sums = {}
            for worker in range(world.workers):
                for row in rows_of(step, worker):
                    sums[row] = sums.get(row, 0) + gradient(step, worker)[row]
            exact.step({row: total / divisor for row, total in sums.items()})
            exact.check(rounds, (updater, options, consistency, step))
    uni.barrier()
