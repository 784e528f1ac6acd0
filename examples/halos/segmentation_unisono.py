"""Finds cells in large images with a U-shaped network, on a grid of processes that divide every image.

    unisono run -n 4 -- examples/halos/segmentation_unisono.py --side 1024

It is segmentation.py with the marked lines changed, and learns the same: each process reads, holds and
computes its own part of an image, and gets its neighbours' pixels where a convolution needs them.
"""

import argparse
import tempfile
from pathlib import Path

import cells
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, StackDataset

# UNISONO: import the package
import unisono as uni
from unisono.torch import RegionDataset, SpatialSampler, spatial

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--data", type=Path, default=Path(tempfile.gettempdir(), "cells"), help="a folder for files"
)
parser.add_argument("--side", type=int, default=256, help="the images' height and width")
parser.add_argument("--images", type=int, default=8)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--most", type=float, default=0.1, help="the part of wrong pixels that must be reached")
parser.add_argument("--save", type=Path, help="a file for the weights")
options = parser.parse_args()

# UNISONO: join the other ranks, with one thread each, in rows and columns
world = uni.init()
torch.set_num_threads(1)
grid = uni.Grid(h=-1, w=2 if world.size % 2 == 0 else 1)


class Block(nn.Sequential):
    """Two convolutions, each normalised over groups of channels."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__(
            *(nn.Conv2d(channels, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU()),
        )


class Network(nn.Module):
    """A U-Net with two levels; skip connections pass features from the encoder to the decoder."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList([Block(1, width), Block(width, 2 * width)])
        self.bottom = Block(2 * width, 4 * width)
        self.up = nn.ModuleList([Block(6 * width, 2 * width), Block(3 * width, width)])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the logit of each pixel being part of a cell."""
        seen = []
        for block in self.down:
            x = block(x)
            seen.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([x, seen.pop()], dim=1))
        return self.last(x)


# UNISONO: one rank writes the files
if world.rank == 0:
    cells.write(options.data, options.images, options.side)
uni.barrier()
files = cells.write(options.data, options.images, options.side)
# UNISONO: each rank reads its own region of them
dataset = StackDataset(*(RegionDataset(file, grid) for file in files))
# UNISONO: in the same order on all ranks
order = SpatialSampler(dataset, grid)

torch.manual_seed(0)
model = Network()
# UNISONO: make it work on parts; its weights keep their names
model = spatial(model, grid)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)

for epoch in range(options.epochs):
    # UNISONO: a new order in each epoch
    order.set_epoch(epoch)
    for images, masks in DataLoader(dataset, options.batch, sampler=order):
        optimizer.zero_grad()
        output = model(images)
        # UNISONO: masks are parts, as images are
        masks = model.part(masks, output.shape)
        loss = functional.binary_cross_entropy_with_logits(output, masks)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        wrong = ((output > 0) != (masks > 0)).float().mean().item()
    # UNISONO: only one rank prints
    if world.rank == 0:
        print(f"epoch {epoch + 1}: loss {loss.item():.6f}, wrong pixels {wrong:.1%}")

# UNISONO: and saves the model
if options.save and world.rank == 0:
    torch.save(model.state_dict(), options.save)
assert wrong <= options.most, f"{wrong:.1%} of the pixels are wrong, more than {options.most:.0%}"
