"""The table of differences shows none for a correct module, and locates the error in a wrong one."""

import pytest
import torch
from networks import Decoder, ResNet18
from torch import nn

import unisono as uni
from unisono.torch import verify


@pytest.mark.parametrize("make, shape", [(lambda: ResNet18(4), (2, 3, 33, 35)), (Decoder, (1, 3, 5, 6))])
def test_a_correct_network(make, shape):
    module = make().double()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    whole = torch.randn(shape, dtype=torch.float64)

    def rank(grid):
        return verify(module, grid, whole, show=False)

    with uni.local_grid(h=2, w=2) as local:
        reports = local.run(rank)
    names = [row.what for row in reports[0].rows]
    assert reports[0] == reports[1] and len(names) == len(set(names))
    layers = [name for name, one in module.named_modules() if not list(one.children())]
    assert all(
        f"output of {name}" in names and f"gradient at {name}" in names
        for name in layers
        if "down" not in name
    )
    assert "input gradient" in names
    assert {f"gradient of {name}" for name, _ in module.named_parameters()} <= set(names)
    assert {f"buffer {name}" for name, _ in module.named_buffers()} <= set(names)
    assert 0 < reports[0].worst.difference <= 1e-10
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())


class Faulty(nn.Module):
    """A layer that differs in one element at a border, as with a wrong halo."""

    def forward(self, x):
        if hasattr(x, "local") and x.grid.rank == 2 and not x.is_meta:
            x.local[0, 0, 0, 1] += 0.25
        return x


def test_a_fault_is_located(capsys):
    module = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), Faulty(), nn.Dropout(0.5))
    for one in module.parameters():
        one.requires_grad_(False)

    def rank(grid):
        return verify(module, grid, torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(1)))

    with uni.local_grid(h=2, w=2) as local:
        report = local.run(rank)[1]
    row = next(row for row in report.rows if row.what == "output of 1")
    assert row.difference == pytest.approx(0.25) and row.rank == 2
    assert row.index == (0, 0, 3, 1) and row.edge == "before h"
    clean = next(row for row in report.rows if row.what == "output of 0")
    assert clean.difference < 1e-5
    table = capsys.readouterr().out
    assert table.count("output of 1 ") == 1 and "[0, 0, 3, 1], before h" in table
