"""Recognises handwritten digits with a small convolutional network, in one process.

    python examples/frameworks/pytorch/cnn.py

cnn_unisono.py is the version for many processes.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=60)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--most", type=float, default=0.08, help="the test error that must be reached")
options = parser.parse_args()

data = mnist(options.data)
images, labels = torch.from_numpy(data.images).unsqueeze(1), torch.from_numpy(data.labels)
tests, answers = torch.from_numpy(data.test_images).unsqueeze(1), torch.from_numpy(data.test_labels)

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)

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
