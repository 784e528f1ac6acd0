"""Recognises handwritten digits with logistic regression in PyTensor, in any number of processes.

    unisono run -n 4 -- examples/frameworks/pytensor/logistic_regression_unisono.py

It is logistic_regression.py with the marked lines changed.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as T

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

# UNISONO: import the package
import unisono as uni
from unisono.pytensor import mv_shared, sync_all_mv_shared_vars

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.13)
parser.add_argument("--most", type=float, default=0.18, help="the test error that must be reached")
options = parser.parse_args()

# UNISONO: join the other workers
world = uni.init()

pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

data = mnist(options.data)
images, labels = data.images.reshape(-1, 784), data.labels
tests, answers = data.test_images.reshape(-1, 784), data.test_labels

x, y = T.fmatrix("x"), T.lvector("y")
# UNISONO: variables that workers share, instead of pytensor.shared
W = mv_shared(value=np.zeros((784, 10), "float32"), name="W", borrow=True)
b = mv_shared(value=np.zeros(10, "float32"), name="b", borrow=True)
probability = T.special.softmax(x @ W + b, axis=1)
loss = -T.log(probability[T.arange(y.shape[0]), y]).mean()
rate = np.float32(options.rate)
updates = [(one, one - rate * T.grad(loss, one)) for one in (W, b)]
train = pytensor.function([x, y], loss, updates=updates)
mistakes = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

random = np.random.default_rng(0)
for epoch in range(options.epochs):
    batches = np.array_split(random.permutation(len(images)), len(images) // options.batch)
    # UNISONO: each worker takes its part of the batches
    for batch in batches[world.worker_id :: world.workers]:
        train(images[batch], labels[batch])
        # UNISONO: add the changes of this step, and take those of the others
        sync_all_mv_shared_vars()
    # UNISONO: wait for the others, and take their last changes
    uni.barrier()
    sync_all_mv_shared_vars()
    error = float(mistakes(tests, answers))
    # UNISONO: only one worker prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
