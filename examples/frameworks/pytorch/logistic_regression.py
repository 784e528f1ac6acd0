"""Recognises handwritten digits with logistic regression, in one process.

    python examples/frameworks/pytorch/logistic_regression.py

logistic_regression_unisono.py is the version for many processes.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=50)
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--most", type=float, default=0.16, help="the test error that must be reached")
options = parser.parse_args()

data = mnist(options.data)
images, labels = torch.from_numpy(data.images).flatten(1), torch.from_numpy(data.labels)
tests, answers = torch.from_numpy(data.test_images).flatten(1), torch.from_numpy(data.test_labels)

torch.manual_seed(0)
model = torch.nn.Linear(28 * 28, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)

for epoch in range(options.epochs):
    batches = torch.randperm(len(images)).split(options.batch)
    for batch in batches:
        optimizer.zero_grad()
        functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        error = (model(tests).argmax(dim=1) != answers).float().mean().item()
    print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
