"""Recognises handwritten digits by logistic regression in PyTensor, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
"""

import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as T

sys.path.append(str(Path(__file__).resolve().parents[1]))
from data import mnist

BATCH, EPOCHS, RATE = 50, 6, np.float32(0.13)
pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

images, labels, test_images, test_labels = mnist(*sys.argv[1:2])
images, test_images = images.reshape(-1, 784), test_images.reshape(-1, 784)

x, y = T.fmatrix("x"), T.lvector("y")
W = pytensor.shared(np.zeros((784, 10), "float32"), name="W", borrow=True)
b = pytensor.shared(np.zeros(10, "float32"), name="b", borrow=True)
probability = T.special.softmax(x @ W + b, axis=1)
loss = -T.log(probability[T.arange(y.shape[0]), y]).mean()
gradients = T.grad(loss, [W, b])
updates = [(one, one - RATE * gradient) for one, gradient in zip([W, b], gradients, strict=True)]
train = pytensor.function([x, y], loss, updates=updates)
error = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

batches = [slice(begin, begin + BATCH) for begin in range(0, len(images), BATCH)]
for _ in range(EPOCHS):
    for batch in batches:
        train(images[batch], labels[batch])

wrong = error(test_images, test_labels)
print(f"test error {wrong:.2%}")
assert wrong < 0.17
