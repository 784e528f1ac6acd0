"""Convolutions whose borders are computed separately: as for large parts, here forced upon small ones."""

import copy
import gc

import pytest
import torch
from compare import compare
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part, spatial
from unisono.torch.space import border_convolution, convolution, exchange_grid

GRIDS = {1: [{"w": 2}, {"w": 3}], 2: [{"h": 3}, {"h": 2, "w": 2}, {"h": 2, "w": 3}], 3: [{"d": 2, "w": 2}]}


@pytest.fixture
def calls(monkeypatch):
    """Records the borders of each convolution that was computed this way."""
    seen = []

    def counted(*arguments):
        seen.append(arguments[-1])
        return border_convolution.convolved_in_place(*arguments)

    monkeypatch.setattr(convolution, "convolved_in_place", counted)
    return seen


@pytest.fixture
def forced(calls, monkeypatch):
    """The same, and parts of any size count as large."""
    monkeypatch.setattr(border_convolution, "WORTHWHILE", 0)
    return calls


@pytest.mark.parametrize("dims", GRIDS)
@pytest.mark.parametrize(
    "kernel, dilation, groups, bias", [(3, 1, 1, True), (5, 1, 2, False), (3, 2, 1, True)]
)
@pytest.mark.parametrize("overlap", [False, True])
def test_convolutions_equal_one_process(forced, dims, kernel, dilation, groups, bias, overlap):
    make = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    layers = [
        make(4, 4, kernel, padding="same", dilation=dilation, groups=groups, bias=bias) for _ in range(2)
    ]
    module = nn.Sequential(layers[0], nn.ReLU(), layers[1]).double()
    whole = torch.rand(2, 4, *[29, 23, 13][-dims:], dtype=torch.float64)
    compare(module, whole, GRIDS[dims], 1e-10, overlap=overlap)
    assert forced, "this path was not used"


def test_parts_that_are_too_small_are_padded(forced):
    module = nn.Conv2d(1, 1, 5, padding=2).double()
    compare(module, torch.rand(1, 1, 9, 9, dtype=torch.float64), [{"h": 3}], 1e-10)
    assert not forced


@pytest.mark.parametrize("side, large", [(16, False), (256, True)])
def test_only_large_parts_use_strips(calls, side, large):
    module = nn.Conv2d(4, 1, 3, padding=1).double()
    compare(module, torch.rand(1, 4, side, side, dtype=torch.float64), [{"h": 2}], 1e-10)
    assert bool(calls) == large


def test_channels_last_is_preserved(forced):
    last = torch.channels_last
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 5, padding=2)).double()
    module = module.to(memory_format=last)
    whole = torch.rand(2, 3, 27, 22, dtype=torch.float64).contiguous(memory_format=last)
    with torch.no_grad():
        expected = module(whole)

    def infer(grid):
        x = Part.of(whole, grid).local.contiguous(memory_format=last)
        with torch.no_grad():
            out = spatial(copy.deepcopy(module), grid)(x)
        assert out.local.is_contiguous(memory_format=last)
        return out.gather()

    with uni.local_grid(h=2, w=2) as local:
        for found in local.run(infer):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert forced, "this path was not used"


def test_many_shapes_do_not_fill_memory(monkeypatch):
    """Ranks that have used different layouts last still drop and make exchanges together."""
    monkeypatch.setattr(exchange_grid, "MOST_LAYOUTS", 8, raising=False)
    monkeypatch.setattr(border_convolution, "WORTHWHILE", 0)
    weight = torch.ones(2, 1, 3, 3)

    def rank(grid):
        kept = []
        for height in [*range(8, 160), 159, 8, 9, 159]:
            whole = torch.ones(1, 1, height, 3)
            part = Part.of(whole, grid)
            found = functional.conv2d(part, weight, padding=1).gather()
            assert torch.equal(found, functional.conv2d(whole, weight, padding=1))
            if grid.rank == 0:
                for width in range(1, 12):
                    Part.of(torch.ones(1, 1, height, width), grid)
            elif height == 159:
                kept.append(part)
            del part
            if height == 159:
                gc.collect()
        grid.group.barrier()

    with uni.local_grid(h=2) as local:
        local.run(rank)
        gc.collect()
        arrays = sum(type(one) is uni.GlobalArray for one in gc.get_objects())
        # Each of the 64 exchanges and 8 layouts that a rank caches takes some.
        assert arrays < 2 * 4 * (64 + 8), arrays
