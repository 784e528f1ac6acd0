"""Recognises handwritten digits with logistic regression in JAX, in any number of processes.

    unisono run -n 4 -- examples/frameworks/jax/logistic_regression_unisono.py

It is logistic_regression.py with the marked lines changed.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

# UNISONO: import the package
import unisono as uni
from unisono.jax import ParameterManager

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.13)
parser.add_argument("--most", type=float, default=0.18, help="the test error that must be reached")
options = parser.parse_args()

# UNISONO: join the other workers
world = uni.init()

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
# UNISONO: all workers share the parameters, starting from worker 0's
manager = ParameterManager(params)
params = manager.model

random = np.random.default_rng(0)
for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    # UNISONO: each worker takes its part of the batches
    for batch in batches[world.worker_id :: world.workers]:
        params = step(params, images[batch], labels[batch])
        # UNISONO: add the changes of this step, and take those of the others
        params = manager.sync(params)
    # UNISONO: wait for the others, and take their last changes
    uni.barrier()
    params = manager.flush(params)
    error = float((scores(params, tests).argmax(axis=1) != answers).mean())
    # UNISONO: only one worker prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
