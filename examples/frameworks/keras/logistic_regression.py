"""Recognises handwritten digits by logistic regression in Keras, and asserts how well.

An argument names the folder with the whole of MNIST; without one a small sample of it is used.
KERAS_BACKEND says on which framework it runs: jax (unless you say otherwise), torch or tensorflow.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
sys.path.append(str(Path(__file__).resolve().parents[1]))
import keras
from data import mnist

images, labels, test_images, test_labels = mnist(*sys.argv[1:2])

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
)
model.compile(keras.optimizers.SGD(0.13), "sparse_categorical_crossentropy", metrics=["accuracy"])

model.fit(
    images,
    labels,
    batch_size=50,
    epochs=6,
    verbose=0,
)

wrong = 1 - model.evaluate(test_images, test_labels, verbose=0, return_dict=True)["accuracy"]
print(f"test error {wrong:.2%}")
assert wrong < 0.17
