"""Recognises handwritten digits by a convolutional network in PyTensor, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
"""

import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as T

sys.path.append(str(Path(__file__).resolve().parents[1]))
from data import mnist

BATCH, EPOCHS, RATE = 30, 3, np.float32(0.2)
KERNEL, FILTERS, SIDE = 5, 8, 24  # the side of what a filter makes of an image: 28 - 5 + 1
pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

images, labels, test_images, test_labels = mnist(*sys.argv[1:2])
random = np.random.RandomState(1)


def parameter(name, *shape):
    """A shared variable with small random values."""
    value = random.normal(0, np.sqrt(2 / shape[0]), shape).astype("float32")
    return pytensor.shared(value, name=name, borrow=True)


# Where each place under each filter lies: PyTensor has no convolution of batches, so it is a matrix product.
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

parameters = [filters, W, b]
gradients = T.grad(loss, parameters)
updates = [(one, one - RATE * gradient) for one, gradient in zip(parameters, gradients, strict=True)]
train = pytensor.function([x, y], loss, updates=updates)
error = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

batches = [slice(begin, begin + BATCH) for begin in range(0, len(images), BATCH)]
for _ in range(EPOCHS):
    for batch in batches:
        train(images[batch], labels[batch])

wrong = error(test_images, test_labels)
print(f"test error {wrong:.2%}")
assert wrong < 0.14
