"""Recognises handwritten digits with a small convolutional network in JAX, in any number of processes.

    unisono run -n 4 -- examples/frameworks/jax/cnn_unisono.py

It is cnn.py with the marked lines changed. All workers share each batch, so the result is that of one
process.
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
import unisono.jax as unijax

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=60)
parser.add_argument("--rate", type=float, default=0.3)
parser.add_argument("--most", type=float, default=0.14, help="the test error that must be reached")
options = parser.parse_args()

# UNISONO: join the other workers
world = uni.init()

data = mnist(options.data)
images, labels = data.images[..., None], data.labels
tests, answers = data.test_images[..., None], data.test_labels


def scores(params, x):
    """Returns the logits of each digit."""
    layout = ("NHWC", "HWIO", "NHWC")
    maps = jax.lax.conv_general_dilated(x, params["filters"], (1, 1), "VALID", dimension_numbers=layout)
    pooled = jax.nn.relu(maps).reshape(-1, 12, 2, 12, 2, 8).max(axis=(2, 4))
    return pooled.reshape(len(x), -1) @ params["W"] + params["b"]


def loss(params, x, y):
    """Returns the mean cross-entropy of the labels."""
    return -jax.nn.log_softmax(scores(params, x))[jnp.arange(len(y)), y].mean()


# UNISONO: instead of jax.jit, so that errors are clear
@unijax.jit
def step(params, x, y):
    """Returns the parameters after training on one batch."""
    gradients = jax.grad(loss)(params, x, y)
    # UNISONO: the average of all workers is the gradient of the full batch
    gradients = unijax.all_reduce(gradients, "avg")
    return jax.tree.map(lambda one, gradient: one - options.rate * gradient, params, gradients)


key, other = jax.random.split(jax.random.key(0))
params = {
    "filters": jax.random.normal(key, (5, 5, 1, 8)) * 0.28,
    "W": jax.random.normal(other, (12 * 12 * 8, 10)) * 0.04,
    "b": jnp.zeros(10),
}

random = np.random.default_rng(0)
for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    for batch in batches:
        # UNISONO: each worker takes its part of the batch
        batch = np.array_split(batch, world.size)[world.rank]
        params = step(params, images[batch], labels[batch])
    error = float((scores(params, tests).argmax(axis=1) != answers).mean())
    # UNISONO: only one worker prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
