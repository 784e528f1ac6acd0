"""Half types are rounded once, as in PyTorch's kernels, and other types give PyTorch's results or errors."""

import pytest
import torch
from compare import TOLERANCES, compare_function
from torch.nn import functional

HALF = (torch.float16, torch.bfloat16)
WEIGHT, BIAS = torch.tensor([1.5, 0.5, -1.0, 2.0]), torch.tensor([0.1, -0.2, 0.3, 0.0])
STATISTICS = torch.tensor([99.0, 100.0, 101.0, 98.0]), torch.tensor([1.0, 2.0, 0.5, 1.0])
PLACES = torch.linspace(0.5, 2, 35).view(5, 7)


def like(x, *numbers):
    """Parameters of a half tensor are float32, those of others have their type."""
    return [one.to(torch.float32 if x.dtype in HALF else x.dtype) for one in numbers]


NORMALISATIONS = {
    "batch_norm": lambda x: functional.batch_norm(x, None, None, *like(x, WEIGHT, BIAS), True),
    "batch_norm, same type": lambda x: functional.batch_norm(
        x, None, None, WEIGHT.to(x.dtype), BIAS.to(x.dtype), True
    ),
    "batch_norm, eval": lambda x: functional.batch_norm(x, *like(x, *STATISTICS, WEIGHT, BIAS)),
    "instance_norm": lambda x: functional.instance_norm(x, None, None, WEIGHT.to(x.dtype), BIAS.to(x.dtype)),
    "instance_norm, eval": lambda x: functional.instance_norm(
        x, *like(x, *STATISTICS), use_input_stats=False
    ),
    "group_norm": lambda x: functional.group_norm(x, 2, *like(x, WEIGHT, BIAS)),
    "layer_norm": lambda x: functional.layer_norm(x, (5, 7), PLACES.to(x.dtype), -PLACES.to(x.dtype)),
    "rms_norm": lambda x: functional.rms_norm(x, (5, 7), PLACES.to(x.dtype)),
    "rms_norm, small": lambda x: functional.rms_norm(x * 1e-5, (7,)),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalisations_of_half_types_round_once(name):
    random = torch.Generator().manual_seed(1)
    for dtype in HALF:
        whole = (torch.randn(2, 4, 5, 7, generator=random) + 100).to(dtype)
        grids, exact = [{"h": 2, "w": 2}, {"h": 6}], "small" not in name
        compare_function(NORMALISATIONS[name], whole, grids, TOLERANCES[dtype], exact=exact)


def poolings(spatial, **options):
    function = getattr(functional, f"avg_pool{spatial}d")
    return lambda x: function(x if spatial < 3 else x[None], 3, 2, 1, **options)


WINDOWS = {
    "avg_pool2d": poolings(2),
    "avg_pool2d, without padding": poolings(2, count_include_pad=False),
    "avg_pool2d, ceil": poolings(2, ceil_mode=True),
    "avg_pool2d, divisor": poolings(2, divisor_override=5),
    "avg_pool1d": lambda x: functional.avg_pool1d(x[0], 3, 2, 1, True, False),
    "avg_pool3d": poolings(3, count_include_pad=False),
    "max_pool2d": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "lp_pool2d": lambda x: functional.lp_pool2d(x, 2, 2),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, (2, 3)),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x[..., :4, :6], 2),
    "nearest": lambda x: functional.interpolate(x, size=(3, 9)),
    "nearest, twice": lambda x: functional.interpolate(x, scale_factor=2),
    "bilinear": lambda x: functional.interpolate(x, size=(8, 4), mode="bilinear"),
    "bicubic": lambda x: functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "area": lambda x: functional.interpolate(x, size=(2, 3), mode="area"),
}
TYPES = (torch.float32, *HALF, torch.int64, torch.int32, torch.uint8, torch.bool)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_over_every_type(name):
    for place, dtype in enumerate(TYPES):
        # Odd lengths, negative numbers, and more ranks than rows.
        whole = torch.arange(-30, 75).view(1, 3, 5, 7)
        whole = (whole + 40 if dtype == torch.uint8 else whole * 90 if dtype == torch.float16 else whole).to(
            dtype
        )
        grids = [[{"h": 2, "w": 2}], [{"h": 3}], [{"w": 2}, {"h": 6}]][place % 3]
        compare_function(WINDOWS[name], whole, grids, TOLERANCES.get(dtype, 0))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_normalisations_reject_integers_on_every_rank(dtype):
    for function in NORMALISATIONS.values():
        compare_function(function, torch.ones(2, 4, 5, 7, dtype=dtype), [{"h": 6}], 0)
