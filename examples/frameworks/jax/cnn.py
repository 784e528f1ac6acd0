"""Recognises handwritten digits by a convolutional network in JAX, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

sys.path.append(str(Path(__file__).resolve().parents[1]))
from data import mnist

BATCH, EPOCHS, RATE = 32, 3, 0.2

images, labels, test_images, test_labels = mnist(*sys.argv[1:2])
images, test_images = images[..., None], test_images[..., None]


def scores(params, x):
    """How much speaks for each digit."""
    layout = ("NHWC", "HWIO", "NHWC")
    maps = jax.lax.conv_general_dilated(x, params["filters"], (1, 1), "VALID", dimension_numbers=layout)
    pooled = jax.nn.relu(maps).reshape(-1, 12, 2, 12, 2, 8).max(axis=(2, 4))
    return pooled.reshape(len(x), -1) @ params["W"] + params["b"]


def loss(params, x, y):
    """The mean surprise about the labels."""
    return -jax.nn.log_softmax(scores(params, x))[jnp.arange(len(y)), y].mean()


@jax.jit
def step(params, x, y):
    """The parameters after one batch."""
    gradients = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda one, gradient: one - RATE * gradient, params, gradients)


key, other = jax.random.split(jax.random.key(1))
params = {
    "filters": jax.random.normal(key, (5, 5, 1, 8)) * 0.28,
    "W": jax.random.normal(other, (12 * 12 * 8, 10)) * 0.04,
    "b": jnp.zeros(10),
}
whole = len(images) // BATCH * BATCH
batches = [slice(begin, begin + BATCH) for begin in range(0, whole, BATCH)]
for _ in range(EPOCHS):
    for batch in batches:
        params = step(params, images[batch], labels[batch])

wrong = (scores(params, test_images).argmax(axis=1) != test_labels).mean()
print(f"test error {wrong:.2%}")
assert wrong < 0.14
