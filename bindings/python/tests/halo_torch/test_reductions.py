"""Reductions of parts: values, types, gradients and errors of one process, and the memory of one part."""

import pytest
import torch
from compare import TOLERANCES, compare_function
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import unisono as uni
from unisono.torch import Part

GRIDS = [{"h": 1}, {"h": 2}, {"w": 3}, {"h": 2, "w": 2}, {"h": 5}, {"data": 2, "h": 3}]
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum((1, 3)), x.sum(axis=2, keepdims=True), x.sum(dtype=torch.float64)),
    "mean": lambda x: (x.mean(), x.mean((2, 3)), x.mean(1), x.mean(dtype=torch.float64)),
    "nansum": lambda x: (x.nansum(), x.nansum((2, 3), keepdim=True)),
    "var": lambda x: (
        x.var(),
        x.var((2, 3)),
        x.var(1),
        x.var(dim=2, correction=0),
    ),
    "std": lambda x: (
        x.std(),
        x.std((2, 3), keepdim=True),
        *torch.std_mean(x, (0, 3)),
        *torch.var_mean(x, 2),
    ),
    "max": lambda x: (x.max(), x.min(), *x.max(2), *x.min(-1, keepdim=True), *x.max(1)),
    "amax": lambda x: (x.amax(), x.amax((2, 3)), x.amin(1), x.amin((1, 2), keepdim=True)),
    "aminmax": lambda x: (*x.aminmax(), *x.aminmax(dim=2), *torch.aminmax(x, dim=-1, keepdim=True)),
    "argmax": lambda x: (
        x.argmax(),
        x.argmin(),
        x.argmax(2),
        x.argmin(3, True),
        x.argmax(1),
        x.argmax(keepdim=True),
    ),
    "any": lambda x: (x.any(), x.all(), x.any(2), x.all(3, True), x.any((2, 3)), x.all(1)),
    "count_nonzero": lambda x: (x.count_nonzero(), x.count_nonzero((2, 3)), x.count_nonzero(1)),
    "logsumexp": lambda x: (x.logsumexp((0, 1, 2, 3)), x.logsumexp((2, 3), True), x.logsumexp(1)),
    "softmax": lambda x: (
        x.softmax(2),
        torch.softmax(x, -1),
        functional.softmax(x, 1),
        functional.softmin(x, 3, dtype=torch.float64),
    ),
    "log_softmax": lambda x: (x.log_softmax(2), functional.log_softmax(x, 3), torch.log_softmax(x, 1)),
    "prod": lambda x: (x.prod(), x.prod(2), x.prod(3, True), x.prod(1)),
    "norm": lambda x: (x.norm(), x.norm(1, 2), x.norm(dim=(2, 3), keepdim=True), x.norm(3.0), x.norm(dim=1)),
    "norm of extremes": lambda x: (
        x.norm(torch.inf),
        x.norm(-torch.inf, (1, 2)),
        x.norm(0, (2, 3)),
        x.norm(0),
    ),
    "linalg.norm": lambda x: (
        torch.linalg.norm(x),
        torch.linalg.norm(x, dim=(2, 3)),
        torch.linalg.norm(x, 1, 3),
        torch.linalg.vector_norm(x, torch.inf, (2, 3)),
        torch.linalg.vector_norm(x, 2, dtype=torch.float64),
    ),
    "normalize": lambda x: (functional.normalize(x, dim=3), functional.normalize(x, 1.0, (2, 3))),
    "no dimension": lambda x: x.amax(4),
}


def drawn(dtype, shape=(2, 3, 4, 5)):
    """Few different values, so that many are equal, and NaN in one row."""
    random = torch.Generator().manual_seed(4)
    whole = torch.randint(-3, 4, shape, generator=random)
    if dtype == torch.bool:
        return whole > 0
    return (whole + 4 if dtype == torch.uint8 else whole).to(dtype)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_parts_are_those_of_the_full_tensor(name):
    for place, dtype in enumerate((*FLOATS, torch.int32, torch.uint8, torch.bool)):
        whole = drawn(dtype)
        grids = [GRIDS[place % len(GRIDS)], GRIDS[(place + 3) % len(GRIDS)]]
        compare_function(REDUCTIONS[name], whole, grids, TOLERANCES.get(dtype, 1e-6))
    # Infinity, NaN at an odd place, and equal elements.
    whole = drawn(torch.float64)
    whole[0, 1, 3, 2], whole[1, 0, 2, 4] = torch.inf, torch.nan
    # For a product with zeros and NaN, PyTorch's gradient depends on the algorithm.
    compare_function(REDUCTIONS[name], whole, [{"h": 3}, {"h": 2, "w": 2}], 1e-12, learns=name != "prod")
    compare_function(REDUCTIONS[name], torch.ones_like(whole), [{"h": 6}, {"h": 2, "w": 3}], 1e-12)
    # Empty tensors.
    compare_function(REDUCTIONS[name], whole[:, :, :0], [{"h": 2}], 1e-12)


LOSSES = {
    "mean": lambda x, y: x.mean(),
    "mse": functional.mse_loss,
    "l1": functional.l1_loss,
    "smooth_l1": functional.smooth_l1_loss,
    "huber": functional.huber_loss,
    "bce": lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "bce with logits": lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl_div": lambda x, y: functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "soft margin": lambda x, y: functional.soft_margin_loss(x, y.sign()),
    "poisson": functional.poisson_nll_loss,
    "gaussian": lambda x, y: functional.gaussian_nll_loss(x, y, y.square() + 1),
    "cross_entropy": lambda x, y: functional.cross_entropy(x, y.argmax(1)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_types_do_not_overflow(dtype):
    # More elements than the largest float16, and sums of their squares far above it.
    random = torch.Generator().manual_seed(5)
    whole = torch.rand(1, 4, 130, 130, generator=random).to(dtype) + 4
    large = whole * 40
    tolerance = TOLERANCES[dtype]
    for loss in LOSSES.values():
        compare_function(lambda x, loss=loss: loss(x, x.detach() * 0.5), whole, [{"h": 2, "w": 2}], tolerance)
    for name in ("mean", "var", "std", "norm", "logsumexp"):
        compare_function(REDUCTIONS[name], large, [{"h": 3}], tolerance)
    compare_function(lambda x: x.sum(dtype=torch.float32), large, [{"h": 3}], 1e-5)


class Allocations(TorchDispatchMode):
    """Records the largest tensor that an operation makes."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (list, tuple)) else [made]:
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.untyped_storage().nbytes())
        return made


FULL = {
    "max": lambda x: x.max() + x.amin() + x.aminmax().max + x.max(2).values.sum(),
    "argmax": lambda x: x.argmax() + x.argmin(2).sum(),
    "truth": lambda x: (x.any(), x.all(), x.count_nonzero()),
    "norm": lambda x: x.norm() + x.norm(1, 2).sum() + x.norm(torch.inf) + torch.linalg.vector_norm(x, 3),
    "softmax": lambda x: x.softmax(2) + x.log_softmax(2),
    "others": lambda x: x.logsumexp((2, 3)) + x.prod() + functional.normalize(x, dim=2).mean(),
}


@pytest.mark.parametrize("name", FULL)
def test_operations_use_the_memory_of_one_part(name):
    shape = (1, 1, 256, 256)

    def rank(grid):
        x = Part.of(torch.ones(shape), grid)
        local = x.local.clone()
        with Allocations() as allocations:
            FULL[name](Part.here(local, shape, grid))
        assert allocations.largest <= local.nbytes

    with uni.local_grid(h=4) as local:
        local.run(rank)
