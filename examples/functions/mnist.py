"""Recognises handwritten digits with a network that several workers train together.

    python examples/functions/mnist.py                                  # a perceptron, 2 workers
    python examples/functions/mnist.py --model cnn --workers 4
    python examples/functions/mnist.py --model mlp --library pytensor --data workers

With --data master the images are in shared memory, and every step selects rows, which the workers fetch
themselves. With --data workers each worker keeps its part of the images. Both train on the same batches, and
both learn exactly what one worker would, because workers are weighted by their rows (weighted=True).

A small part of MNIST is in examples/data. For all of it, pass --images FOLDER or set the variable MNIST.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from unisono import functions

sys.path.append(str(Path(__file__).resolve().parents[1] / "frameworks"))
from data import SAMPLE, mnist


def torch_parts(model: str, hidden: int) -> tuple:
    """Loss and parameters for PyTorch."""
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    nn = torch.nn
    if model == "mlp":
        network = nn.Sequential(nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    else:
        network = nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, hidden // 8, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(hidden // 8, hidden // 8, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(hidden // 8 * 16, 10),
        )

    def loss(x, y):
        return nn.functional.cross_entropy(network(x), y)

    return loss, network


def jax_parts(model: str, hidden: int) -> tuple:
    """Loss and parameters for JAX."""
    import jax
    import jax.numpy as jnp

    params = weights(model, hidden, functions.shared)

    def surprise(scores, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], axis=1).mean()

    def mlp(x, y, w1, b1, w2, b2):
        return surprise(jnp.maximum(x @ w1 + b1, 0) @ w2 + b2, y)

    def cnn(x, y, filters, b1, w2, b2):
        kernel, layout = filters.reshape(5, 5, 1, -1), ("NHWC", "HWIO", "NHWC")
        images = x.reshape(-1, 28, 28, 1)
        maps = jax.lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=layout)
        pooled = jnp.maximum(maps + b1, 0).reshape(-1, 12, 2, 12, 2, b1.size).max(axis=(2, 4))
        return surprise(pooled.reshape(-1, w2.shape[0]) @ w2 + b2, y)

    return mlp if model == "mlp" else cnn, params


def pytensor_parts(model: str, hidden: int, x: object, y: object) -> tuple:
    """Loss and parameters for PyTensor; x and y are symbolic or shared."""
    import pytensor
    import pytensor.tensor as pt
    import pytensor.tensor.special

    params = weights(model, hidden, pytensor.shared)
    w1, b1, w2, b2 = params
    if model == "mlp":
        features = pt.maximum(x @ w1 + b1, 0)
    else:
        # PyTensor has no batched convolution, so it is a matrix product with the patches under the filters.
        corner, inside = np.indices((24, 24)).reshape(2, -1, 1), np.indices((5, 5)).reshape(2, 1, -1)
        rows, columns = corner + inside
        maps = pt.maximum(x[:, 28 * rows + columns] @ w1 + b1, 0)
        pooled = maps.reshape((-1, 12, 2, 12, 2, b1.get_value().size)).max(axis=(2, 4))
        features = pooled.reshape((-1, w2.get_value().shape[0]))
    scores = features @ w2 + b2
    chosen = pt.special.log_softmax(scores, axis=1)[pt.arange(y.shape[0]), y]
    return -chosen.mean(dtype="float32"), params


def weights(model: str, hidden: int, shared: object) -> list:
    """Returns the weights of a network of two layers, the same in every run."""
    random = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype("float32")

    # A convolution with 5 by 5 filters; its 24 by 24 outputs are pooled to 12 by 12.
    filters = hidden // 8
    inputs, width, features = (784, hidden, hidden) if model == "mlp" else (25, filters, 144 * filters)
    values = [matrix(inputs, width), np.zeros(width, "float32")]
    values += [matrix(features, 10), np.zeros(10, "float32")]
    names = ("w1" if model == "mlp" else "filters", "b1", "w2", "b2")
    return [shared(value, name) for value, name in zip(values, names, strict=True)]


def train(workers: int, options: argparse.Namespace) -> tuple[list[float], float]:
    """Trains, and returns the loss of every step and the seconds that the steps took."""
    digits = mnist(options.images)
    images, labels = digits.images.reshape(-1, 784), digits.labels
    functions.start(workers)
    in_workers = options.data == "workers"
    rule = ("nesterov_momentum", 0.01)
    x = y = None
    if options.library == "pytensor":
        import pytensor
        import pytensor.tensor as pt

        if in_workers:
            x, y = pytensor.shared(images[:1], "x"), pytensor.shared(labels[:1], "y")
        else:
            x, y = pt.fmatrix("x"), pt.lvector("y")
        loss, params = pytensor_parts(options.model, options.hidden, x, y)
    else:
        if in_workers:
            x, y = functions.shared(images[:1], "x"), functions.shared(labels[:1], "y")
        parts = torch_parts if options.library == "torch" else jax_parts
        loss, params = parts(options.model, options.hidden)
    step = functions.make_train_function(loss, params, x, y, *rule, weighted=True)
    functions.distribute()
    if in_workers:
        functions.scatter([x, y], [images, labels])
        ends = np.cumsum(functions.get_lengths(x))
        inputs = ()
    else:
        inputs = functions.data(images), functions.data(labels)
    random = np.random.default_rng(2)
    losses, began = [], time.perf_counter()
    for _ in range(options.epochs):
        order = random.permutation(len(images))
        for start in range(0, len(order), options.batch):
            rows = order[start : start + options.batch]
            if in_workers:
                # The same rows, by the worker that holds them.
                own = [
                    rows[(rows >= first) & (rows < end)] - first
                    for first, end in zip([0, *ends], ends, strict=False)
                ]
                losses.append(float(step(shared_batch=own)))
            else:
                losses.append(float(step(*inputs, batch=rows)))
    seconds = time.perf_counter() - began
    functions.close()
    return losses, seconds


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="how many processes work")
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--library", choices=["torch", "jax", "pytensor"], default="torch")
    parser.add_argument(
        "--data", choices=["master", "workers"], default="master", help="where the images lie"
    )
    parser.add_argument("--batch", type=int, default=500, help="rows of a step, over all workers")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128, help="how wide the network is")
    parser.add_argument(
        "--images", type=Path, default=Path(os.environ.get("MNIST", SAMPLE)), help="the folder of MNIST"
    )
    return parser.parse_args(words)


def main() -> None:
    """Trains and prints the results."""
    options = arguments()
    losses, seconds = train(options.workers, options)
    first, last = losses[0], np.mean(losses[-3:])
    print(
        f"{options.workers} workers, {len(losses)} steps in {seconds:.2f} s: loss {first:.3f} -> {last:.3f}"
    )


if __name__ == "__main__":
    main()
