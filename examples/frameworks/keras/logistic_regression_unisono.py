"""Recognises handwritten digits with logistic regression in Keras, in any number of processes.

    unisono run -n 4 -- examples/frameworks/keras/logistic_regression_unisono.py

It is logistic_regression.py with the marked lines changed.

KERAS_BACKEND selects the backend of Keras: jax (the default here), torch or tensorflow.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

# UNISONO: import the package
import unisono as uni
from unisono.keras import SyncCallback

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
images, labels = data.images, data.labels
tests, answers = data.test_images, data.test_labels

# UNISONO: each worker takes its part of the images
share = len(images) // world.workers
mine = slice(world.worker_id * share, (world.worker_id + 1) * share)
images, labels = images[mine], labels[mine]

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
)
model.compile(keras.optimizers.SGD(options.rate), "sparse_categorical_crossentropy", metrics=["accuracy"])

# UNISONO: after each batch, add its changes and take those of the others
sync = SyncCallback(model)
callbacks = [sync]
for epoch in range(options.epochs):
    model.fit(images, labels, batch_size=options.batch, verbose=0, callbacks=callbacks)
    # UNISONO: wait for the others, and take their last changes
    uni.barrier()
    sync.manager.flush()
    error = 1 - model.evaluate(tests, answers, verbose=0, return_dict=True)["accuracy"]
    # UNISONO: only one worker prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
