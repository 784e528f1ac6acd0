"""Recognises handwritten digits by logistic regression in JAX, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp

import unisono as uni  # UNISONO: the library
from unisono.jax import ParameterManager  # UNISONO: its manager of trees

sys.path.append(str(Path(__file__).resolve().parents[1]))
from data import mnist

BATCH, EPOCHS, RATE = 50, 6, 0.13

world = uni.init()  # UNISONO: joins the other workers
images, labels, test_images, test_labels = mnist(*sys.argv[1:2])
images, test_images = images.reshape(-1, 784), test_images.reshape(-1, 784)


def scores(params, x):
    """How much speaks for each digit."""
    return x @ params["W"] + params["b"]


def loss(params, x, y):
    """The mean surprise about the labels."""
    return -jax.nn.log_softmax(scores(params, x))[jnp.arange(len(y)), y].mean()


@jax.jit
def step(params, x, y):
    """The parameters after one batch."""
    gradients = jax.grad(loss)(params, x, y)
    return jax.tree.map(lambda one, gradient: one - RATE * gradient, params, gradients)


params = {"W": jnp.zeros((784, 10)), "b": jnp.zeros(10)}
manager = ParameterManager(params)  # UNISONO: all have worker 0's first values
params = manager.model  # UNISONO: which are these
batches = [slice(begin, begin + BATCH) for begin in range(0, len(images), BATCH)]
for _ in range(EPOCHS):
    for batch in batches[world.rank :: world.size]:  # UNISONO: each worker has its own batches
        params = step(params, images[batch], labels[batch])
        params = manager.sync(params)  # UNISONO: adds what this worker learned, takes what all did

uni.barrier()  # UNISONO: all have added everything
params = manager.flush(params)  # UNISONO: and everybody has it
wrong = (scores(params, test_images).argmax(axis=1) != test_labels).mean()
print(f"test error {wrong:.2%}")
assert wrong < 0.17
