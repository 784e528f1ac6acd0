"""A training step to measure: a convolutional network on images like MNIST's, over the current workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unisono import functions


def network() -> Any:
    """The network, with the same weights at every start."""
    import torch

    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def images(count: int) -> tuple[Any, Any]:
    """Random images and labels: the time of a step does not depend on what they show."""
    random = np.random.default_rng(0)
    return random.random((count, 1, 28, 28), dtype="float32"), random.integers(0, 10, count)


def digits_step(batch: int) -> Callable[[], Any]:
    """Makes the step: of `batch` rows in all, drawn from data in shared memory.

    Args:
        batch: How many rows.

    Returns:
        A function without arguments that makes one step.
    """
    import torch

    model = network()

    def loss(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x), y)

    step = functions.make_train_function(loss, model, None, None, "nesterov_momentum", 0.01)
    pixels, labels = images(4 * batch)
    x, y = functions.data(pixels), functions.data(labels)
    random = np.random.default_rng(1)
    return lambda: step(x, y, batch=random.integers(0, 4 * batch, batch))
