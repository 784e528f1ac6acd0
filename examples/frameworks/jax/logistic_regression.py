"""Recognises handwritten digits with logistic regression in JAX, in one process.

    python examples/frameworks/jax/logistic_regression.py

logistic_regression_unisono.py is the version for many processes.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.13)
parser.add_argument("--most", type=float, default=0.18, help="the test error that must be reached")
options = parser.parse_args()

data = mnist(options.data)
images, labels = data.images.reshape(-1, 784), data.labels
tests, answers = data.test_images.reshape(-1, 784), data.test_labels


def scores(params, x):
    """Returns the logits of each digit."""
    return x @ params["W"] + params["b"]


def loss(params, x, y):
    """Returns the mean cross-entropy of the labels."""
    return -jax.nn.log_softmax(scores(params, x))[jnp.arange(len(y)), y].mean()


@jax.jit
def step(params, x, y):
    """Returns the parameters after training on one batch."""
    gradients = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda one, gradient: one - options.rate * gradient, params, gradients)


params = {"W": jnp.zeros((784, 10)), "b": jnp.zeros(10)}

random = np.random.default_rng(0)
for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    for batch in batches:
        params = step(params, images[batch], labels[batch])
    error = float((scores(params, tests).argmax(axis=1) != answers).mean())
    print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
