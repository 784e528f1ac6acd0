"""Finds cells in large images with a U-shaped network, in one process.

    python examples/halos/segmentation.py --side 1024

segmentation_unisono.py is the same on a grid of processes: each has a part of every image.
"""

import argparse
import tempfile
from pathlib import Path

import cells
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, StackDataset

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


files = cells.write(options.data, options.images, options.side)
dataset = StackDataset(*(cells.load(file) for file in files))

torch.manual_seed(0)
model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9)

for epoch in range(options.epochs):
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(epoch)).tolist()
    for images, masks in DataLoader(dataset, options.batch, sampler=order):
        optimizer.zero_grad()
        output = model(images)
        loss = functional.binary_cross_entropy_with_logits(output, masks)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        wrong = ((output > 0) != (masks > 0)).float().mean().item()
    print(f"epoch {epoch + 1}: loss {loss.item():.6f}, wrong pixels {wrong:.1%}")

if options.save:
    torch.save(model.state_dict(), options.save)
assert wrong <= options.most, f"{wrong:.1%} of the pixels are wrong, more than {options.most:.0%}"
