"""Recognises handwritten digits with a small convolutional network, in any number of processes.

    unisono run -n 4 -- examples/frameworks/pytorch/cnn_unisono.py

It is cnn.py with the marked lines changed. All workers share each batch, so the result is that of one
process.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import mnist

# UNISONO: import the package
import unisono as uni
from unisono.torch import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", help="a folder with MNIST's four files; by default a small sample")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=60)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--most", type=float, default=0.08, help="the test error that must be reached")
options = parser.parse_args()

# UNISONO: join the other workers, with one thread each
world = uni.init()
torch.set_num_threads(1)

data = mnist(options.data)
images, labels = torch.from_numpy(data.images).unsqueeze(1), torch.from_numpy(data.labels)
tests, answers = torch.from_numpy(data.test_images).unsqueeze(1), torch.from_numpy(data.test_labels)

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(16 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
)
# UNISONO: gradients are averaged between workers while backward computes
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)

for epoch in range(options.epochs):
    batches = torch.randperm(len(images)).split(options.batch)
    for batch in batches:
        # UNISONO: each worker takes its part of the batch
        batch = batch.tensor_split(world.size)[world.rank]
        optimizer.zero_grad()
        # UNISONO: the last batch may have parts that differ in size
        model.weigh(len(batch))
        functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        error = (model(tests).argmax(dim=1) != answers).float().mean().item()
    # UNISONO: only one worker prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: test error {error:.1%}")

assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"
