"""Dropout in a checkpoint, recomputed with the same masks; ranks have different seeds."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import unisono as uni
from unisono.torch import Part, spatial


class Drops(nn.Module):
    """Dropout before the checkpoint and in it."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(4, 4, 3, padding=1)
        )

    def forward(self, x):
        return checkpoint(self.body, functional.dropout(self.stem(x), 0.3), use_reentrant=False)


world = uni.init()
torch.manual_seed(0)
net = Drops().double()
single = copy.deepcopy(net)
whole = torch.randn(2, 1, 8, 8, dtype=torch.float64)
grid = uni.Grid(h=-1)
torch.manual_seed(7 + world.rank)
spatial(net, grid)(Part.of(whole, grid)).pow(3).mean().backward()
torch.manual_seed(7)
single(whole).pow(3).mean().backward()
for ours, theirs in zip(net.parameters(), single.parameters(), strict=True):
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-10, atol=1e-12)

# Without draws, every rank keeps its own seed.
torch.manual_seed(7 + world.rank)
before = torch.get_rng_state()
spatial(copy.deepcopy(single.stem), grid)(Part.of(whole, grid))
assert torch.equal(torch.get_rng_state(), before)
