"""Recognises handwritten digits by logistic regression in PyTensor, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
"""

import sys
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as T

import unisono as uni  # UNISONO: the library
from unisono.pytensor import mv_shared, sync_all_mv_shared_vars  # UNISONO: shared variables in step

sys.path.append(str(Path(__file__).resolve().parents[1]))
from data import mnist

BATCH, EPOCHS, RATE = 50, 6, np.float32(0.13)
pytensor.config.mode = "FAST_COMPILE"  # compiling would take longer than training

world = uni.init()  # UNISONO: joins the other workers
images, labels, test_images, test_labels = mnist(*sys.argv[1:2])
images, test_images = images.reshape(-1, 784), test_images.reshape(-1, 784)

x, y = T.fmatrix("x"), T.lvector("y")
W = mv_shared(np.zeros((784, 10), "float32"), name="W", borrow=True)  # UNISONO: instead of shared
b = mv_shared(np.zeros(10, "float32"), name="b", borrow=True)  # UNISONO: instead of shared
probability = T.special.softmax(x @ W + b, axis=1)
loss = -T.log(probability[T.arange(y.shape[0]), y]).mean()
gradients = T.grad(loss, [W, b])
updates = [(one, one - RATE * gradient) for one, gradient in zip([W, b], gradients, strict=True)]
train = pytensor.function([x, y], loss, updates=updates)
error = pytensor.function([x, y], T.neq(probability.argmax(axis=1), y).mean())

batches = [slice(begin, begin + BATCH) for begin in range(0, len(images), BATCH)]
for _ in range(EPOCHS):
    for batch in batches[world.rank :: world.size]:  # UNISONO: each worker has its own batches
        train(images[batch], labels[batch])
        sync_all_mv_shared_vars()  # UNISONO: adds what this worker learned, takes what all did

uni.barrier()  # UNISONO: all have added everything
sync_all_mv_shared_vars()  # UNISONO: and everybody has it
wrong = error(test_images, test_labels)
print(f"test error {wrong:.2%}")
assert wrong < 0.17
