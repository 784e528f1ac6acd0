"""Dry runs complete, and import nothing heavy."""

import copy
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[1])]

import networks  # noqa: E402
from layers import KINDS, pieces, random_case  # noqa: E402

import unisono as uni  # noqa: E402
from unisono.torch import Part, spatial  # noqa: E402
from unisono.torch.space.dry_run import run_without_data  # noqa: E402

known = [
    (networks.ResNet18(4), torch.zeros(2, 3, 40, 40), {"h": 2, "w": 2}),
    (networks.UNet(2), torch.zeros(2, 1, 16, 16), {"h": 3}),
    (networks.UNet(3), torch.zeros(1, 1, 9, 10, 13), {"d": 2, "h": 1, "w": 2}),
]
cases = [random_case(kind, seed) for kind in KINDS if kind is not pieces for seed in range(8)]


def rank(grid, module, whole):
    inputs = spatial(module, grid).dry_run(Part.of(whole, grid))
    assert run_without_data(module, inputs, grid), module


def walk(module, whole, axes):
    with uni.local_grid(**axes) as local:
        local.run(lambda grid: rank(grid, copy.deepcopy(module), whole))


for case in known + cases:
    walk(*case)
# PyTorch's kernels for meta tensors import its compiler: seconds, and much memory.
assert "torch._dynamo" not in sys.modules
walk(networks.Decoder(), torch.zeros(1, 3, 5, 5), {"h": 2, "w": 2})
