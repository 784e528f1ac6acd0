"""Full networks on grids of many kinds: outputs, gradients and statistics are those of one process."""

import pytest
import torch
from compare import compare
from networks import Decoder, ResNet18, UNet

import unisono as uni
from unisono.torch.space import border_convolution
from unisono.torch.space.overlap import pieces_of

GRIDS = [{"w": 2}, {"h": 3}, {"h": 2, "w": 2}, {"h": 3, "w": 2}]
NETWORKS = {
    "ResNet-18": (lambda: ResNet18(4), (2, 3, 45, 37), GRIDS),
    "U-Net 2-D": (lambda: UNet(2), (2, 1, 21, 18), GRIDS),
    "U-Net 3-D": (
        lambda: UNet(3),
        (1, 1, 9, 10, 13),
        [{"d": 2}, {"w": 3}, {"d": 2, "h": 2}, {"d": 3, "h": 1, "w": 2}],
    ),
    "VAE decoder": (Decoder, (2, 3, 7, 5), GRIDS),
}


def network(name, dtype):
    torch.manual_seed(1)
    make, shape, grids = NETWORKS[name]
    return make().to(dtype), torch.randn(shape).to(dtype), grids


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_double_precision(name):
    module, whole, grids = network(name, torch.float64)
    compare(module, whole, grids, 1e-10)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_single_precision(name):
    module, whole, grids = network(name, torch.float32)
    compare(module, whole, grids[1:3], 1e-5)


def test_batches_are_divided_and_gradients_accumulate():
    module, whole, _ = network("ResNet-18", torch.float64)
    compare(module, whole, [{"data": 2, "w": 2}, {"data": 2, "h": 1, "w": 3}], 1e-10, passes=2)


def test_one_rank_is_one_process():
    module, whole, _ = network("U-Net 2-D", torch.float64)
    compare(module, whole, [{"h": 1, "w": 1}], 1e-12)


@pytest.mark.parametrize("name", ["ResNet-18", "U-Net 3-D"])
def test_halos_overlap_with_the_inner_part(name):
    module, whole, grids = network(name, torch.float64)
    compare(module, whole, grids[:3], 1e-10, overlap=True)


def test_inner_outputs_and_slabs_cover_everything_once():
    def rank(grid):
        array = uni.GlobalArray((1, 1, 40, 38), grid)
        for kernel, stride, padding, dilation in [(3, 1, 1, 1), (5, 2, 2, 1), (2, 1, 0, 3), (7, 3, 3, 1)]:
            window = array.window([kernel] * 2, stride, padding, dilation)
            pieces = pieces_of(window, 2)
            assert pieces is not None
            seen = torch.zeros(window.output.local_shape)
            for box in (pieces.inner, *pieces.slabs):
                seen[(..., *(slice(*one) for one in box))] += 1
            assert (seen == 1).all() and len(pieces.slabs) <= 4

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


@pytest.mark.parametrize("name", ["ResNet-18", "U-Net 3-D"])
def test_parts_are_convolved_without_padding_like_large_ones(name, monkeypatch):
    monkeypatch.setattr(border_convolution, "WORTHWHILE", 0)
    module, whole, grids = network(name, torch.float64)
    compare(module, whole, grids[:3], 1e-10)
