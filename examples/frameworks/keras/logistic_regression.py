"""Recognises handwritten digits with logistic regression in Keras, in one process.

    python examples/frameworks/keras/logistic_regression.py

logistic_regression_unisono.py is the version for many processes.

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

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.13)
parser.add_argument("--most", type=float, default=0.18, help="the test error that must be reached")
options = parser.parse_args()

data = mnist(options.data)
images, labels = data.images, data.labels
tests, answers = data.test_images, data.test_labels

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
)
model.compile(keras.optimizers.SGD(options.rate), "sparse_categorical_crossentropy", metrics=["accuracy"])

callbacks = []
for epoch in range(options.epochs):
    model.fit(images, labels, batch_size=options.batch, verbose=0, callbacks=callbacks)
    error = 1 - model.evaluate(tests, answers, verbose=0, return_dict=True)["accuracy"]
    print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
