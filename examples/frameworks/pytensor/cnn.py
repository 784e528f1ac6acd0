"""Recognises handwritten digits with a convolutional network in PyTensor, in one process.

    python examples/frameworks/pytensor/cnn.py

cnn_unisono.py is the version for many processes.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as T

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=25)
parser.add_argument("--rate", type=float, default=0.3)
parser.add_argument("--most", type=float, default=0.16, help="the test error that must be reached")
options = parser.parse_args()

pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

data = mnist(options.data)
images, labels = data.images, data.labels
tests, answers = data.test_images, data.test_labels

KERNEL, FILTERS, SIDE = 5, 8, 24  # a filter turns a 28 by 28 image into a 24 by 24 one
random = np.random.default_rng(0)


def parameter(name, *shape):
    """A shared variable with small random values."""
    value = random.normal(0, np.sqrt(2 / shape[0]), shape).astype("float32")
    return pytensor.shared(value, name=name, borrow=True)


# The patches under each filter. PyTensor has no batched convolution, so it is a matrix product.
corner, inside = np.indices((SIDE, SIDE)).reshape(2, -1, 1), np.indices((KERNEL, KERNEL)).reshape(2, 1, -1)
rows, columns = corner + inside

x, y = T.ftensor3("x"), T.lvector("y")
filters = parameter("filters", KERNEL * KERNEL, FILTERS)
W = parameter("W", SIDE // 2 * SIDE // 2 * FILTERS, 10)
b = pytensor.shared(np.zeros(10, "float32"), name="b", borrow=True)
maps = T.maximum(x[:, rows, columns] @ filters, 0)
pooled = maps.reshape((-1, SIDE // 2, 2, SIDE // 2, 2, FILTERS)).max(axis=(2, 4))
probability = T.special.softmax(pooled.reshape((x.shape[0], -1)) @ W + b, axis=1)
loss = -T.log(probability[T.arange(y.shape[0]), y]).mean()

rate = np.float32(options.rate)
parameters = [filters, W, b]
gradients = T.grad(loss, parameters)
updates = [(one, one - rate * gradient) for one, gradient in zip(parameters, gradients, strict=True)]
train = pytensor.function([x, y], loss, updates=updates)
mistakes = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    for batch in batches:
        train(images[batch], labels[batch])
    error = float(mistakes(tests, answers))
    print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
