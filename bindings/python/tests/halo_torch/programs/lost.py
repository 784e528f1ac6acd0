"""A rank that dies in the middle of a backward pass: the others' errors name it."""

import os
import signal
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[2] / "programs")]

import unisono as uni  # noqa: E402
from note import note  # noqa: E402
from unisono.torch import Part, spatial  # noqa: E402

world = uni.init()
grid = uni.Grid(h=-1)
torch.manual_seed(0)
layers = [torch.nn.Conv2d(1, 1, 3, padding=1) for _ in range(4)]
model = spatial(torch.nn.Sequential(*layers), grid)
x = Part.of(torch.ones(1, 1, 16, 16), grid)
model(x).sum().backward()
out = model(x)
if world.rank == 1:
    out.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
try:
    while True:
        out.sum().backward()
        out = model(x)
except uni.PeerLost as lost:
    assert lost.lost[0].rank == 1
    note(world.rank, f"lost {lost.lost[0].rank}")
