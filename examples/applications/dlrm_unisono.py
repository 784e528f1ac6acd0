"""Predicts clicks with a deep learning recommendation model (DLRM), in any number of processes.

    unisono run -n 4 -- examples/applications/dlrm_unisono.py
    unisono run -n 4 -- examples/applications/dlrm_unisono.py --data train.txt --steps 100000

It is dlrm.py with the marked lines changed. The rows are in a table that all workers share; the network is
replicated, and its gradients are averaged.
"""

import argparse
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from clicks import CATEGORIES, NUMBERS, Generated, area_under_curve, read
from torch import nn
from torch.nn import functional

# UNISONO: import the package
import unisono as uni
from unisono.torch import DistributedDataParallel, Embedding

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", type=Path, help="a file in the format of Criteo's logs")
parser.add_argument("--rows", type=int, default=10_000, help="ids of each of the 26 categories")
parser.add_argument("--dim", type=int, default=16, help="values of a row")
parser.add_argument("--batch", type=int, default=512)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--rate", type=float, default=0.003)
parser.add_argument("--least", type=float, default=0.0, help="the area under the curve that must be reached")
options = parser.parse_args()

# UNISONO: join the other workers, with one thread each
world = uni.init()
torch.set_num_threads(1)

torch.manual_seed(0)


class Recommender(nn.Module):
    """A network over the products of all pairs of vectors: the rows of the categories, and the numbers."""

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__()
        # One table for all categories: the ids of a category begin where those of the one before end.
        # UNISONO: the updater takes the steps of the rows, and replaces their optimizer
        self.embedding = Embedding(
            CATEGORIES * rows,
            dim,
            updater="adam",
            lr=options.rate,
            init=uni.normal(0, 0.1, seed=0),
            consistency="bsp:mean",
        )
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, 64), nn.ReLU(), nn.Linear(64, dim), nn.ReLU())
        products = CATEGORIES * (CATEGORIES + 1) // 2
        self.top = nn.Sequential(nn.Linear(dim + products, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("first", torch.arange(CATEGORIES) * rows)
        self.register_buffer("pairs", torch.tril_indices(CATEGORIES + 1, CATEGORIES + 1, -1))

    def forward(self, numbers: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The score of each sample: the logarithm of the odds of a click."""
        x = self.bottom(numbers)
        vectors = torch.cat([x[:, None], self.embedding(ids + self.first)], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).squeeze(1)


def batches():
    """All samples; the last tenth is for tests."""
    if options.data is None:
        generated = Generated(options.rows)
        return (generated.samples(step, options.batch) for step in range(options.steps))
    return islice(read(options.data, options.rows, options.batch), options.steps)


model = Recommender(options.rows, options.dim)
# UNISONO: the gradients of the network are averaged between workers while backward computes
model = DistributedDataParallel(model)
optimizers = [torch.optim.Adam(model.parameters(), lr=options.rate)]

tests = options.steps // 10
scores, clicks, losses, began = [], [], [], time.perf_counter()
for step, batch in enumerate(batches()):
    # UNISONO: each worker takes its part of the batch
    numbers, ids, clicked = (
        torch.from_numpy(one).tensor_split(world.workers)[world.worker_id] for one in batch
    )
    if step < options.steps - tests:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(numbers, ids), clicked)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        # UNISONO: only one worker prints
        if (step + 1) % 100 == 0 and world.rank == 0:
            rate = (step + 1) * options.batch / (time.perf_counter() - began)
            print(f"step {step + 1}: loss {np.mean(losses[-100:]):.4f}, {rate:,.0f} samples/s", flush=True)
    else:
        with torch.no_grad():
            # UNISONO: the scores of all workers
            scores.append(uni.all_gather(model(numbers, ids), varied=True).numpy())
            clicks.append(batch[2])

reached = area_under_curve(np.concatenate(scores), np.concatenate(clicks))
# UNISONO: only one worker prints
if world.rank == 0:
    print(f"area under the curve: {reached:.4f}")
assert reached >= options.least, f"an area of {reached:.4f} is less than {options.least}"
