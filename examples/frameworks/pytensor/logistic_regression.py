"""Recognises handwritten digits with logistic regression in PyTensor, in one process.

    python examples/frameworks/pytensor/logistic_regression.py

logistic_regression_unisono.py is the version for many processes.
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
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.13)
parser.add_argument("--most", type=float, default=0.18, help="the test error that must be reached")
options = parser.parse_args()

pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

data = mnist(options.data)
images, labels = data.images.reshape(-1, 784), data.labels
tests, answers = data.test_images.reshape(-1, 784), data.test_labels

x, y = T.fmatrix("x"), T.lvector("y")
W = pytensor.shared(value=np.zeros((784, 10), "float32"), name="W", borrow=True)
b = pytensor.shared(value=np.zeros(10, "float32"), name="b", borrow=True)
probability = T.special.softmax(x @ W + b, axis=1)
loss = -T.log(probability[T.arange(y.shape[0]), y]).mean()
rate = np.float32(options.rate)
updates = [(one, one - rate * T.grad(loss, one)) for one in (W, b)]
train = pytensor.function([x, y], loss, updates=updates)
mistakes = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

random = np.random.default_rng(0)
for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    for batch in batches:
        train(images[batch], labels[batch])
    error = float(mistakes(tests, answers))
    print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
