"""The same passes on one process and on the ranks of a grid, and their differences."""

import copy

import torch

import unisono as uni
from unisono.torch import Part, spatial

TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""The tolerance, relative to the largest value: a few roundings."""


def weighted(out):
    """A loss in which every output element has its own weight, the same on one process and on parts."""
    pieces = out if isinstance(out, (list, tuple)) else [out]
    value = 0.0
    for one in pieces:
        shape = tuple(one.shape)
        count = torch.Size(shape).numel()
        places = torch.arange(count, dtype=one.dtype, device=one.device)
        weights = torch.cos(places * 1.7 + 0.3).view(shape)
        value = value + (one * weights).sum() / count**0.5 + 0.1 * (one * one).mean()
    return value


def alone(module, whole, passes=1, seed=5):
    """Outputs, gradients and statistics of one process."""
    module = copy.deepcopy(module)
    torch.manual_seed(seed)
    x = whole.clone().requires_grad_()
    for _ in range(passes):
        out = module(x)
        weighted(out).backward()
    return summary(out, x.grad, module)


def summary(out, gradient, module):
    pieces = out if isinstance(out, (list, tuple)) else [out]
    found = {f"output {place}": one.detach() for place, one in enumerate(pieces)}
    found["input gradient"] = gradient
    for name, one in module.named_parameters():
        found[f"gradient of {name}"] = one.grad
    for name, one in module.named_buffers():
        found[f"buffer {name}"] = one
    return found


def apart(grid, module, whole, passes=1, overlap=False, seed=5):
    """The same on the ranks of a grid; partitioned results are gathered."""
    module = copy.deepcopy(module)
    model = spatial(module, grid, overlap=overlap)
    if grid.rank == 0:
        torch.manual_seed(seed)
    grid.group.barrier()
    part = Part.of(whole, grid)
    x = part.local.clone().requires_grad_()
    for _ in range(passes):
        out = model(x)
        weighted(out).backward()
    pieces = out if isinstance(out, (list, tuple)) else [out]
    for one in pieces:
        assert isinstance(one, Part)
        if one.array.split:
            expected = uni.GlobalArray(one.shape, grid, one.array.split)
            assert one.array.region == expected.region and tuple(one.local.shape) == expected.local_shape
    pieces = [one.detach().gather() for one in pieces]
    gradient = Part.here(x.grad, whole.shape, grid).gather()
    return summary(pieces, gradient, module)


def check(expected, found, tolerance):
    """Fails if the difference exceeds the tolerance, relative to the largest element."""
    assert expected.keys() == found.keys()
    for name, one in expected.items():
        other = found[name]
        assert (one is None) == (other is None), name
        if one is None:
            continue
        assert one.shape == other.shape and one.dtype == other.dtype, (name, one.shape, other.shape)
        if one.numel():
            size = max(1.0, one.abs().max().item())
            difference = (one - other).abs().max().item() / size
            assert difference <= tolerance, f"{name}: {difference:.1e}"


def compare(module, whole, grids, tolerance=1e-10, passes=1, overlap=False):
    """Compares one process with some grids, whose ranks are threads."""
    torch.set_num_threads(1)
    expected = alone(module, whole, passes)
    for axes in grids:
        with uni.local_grid(**axes) as local:
            for found in local.run(apart, module, whole, passes, overlap):
                check(expected, found, tolerance)


def _outcome(function, x):
    """A function's results and its input's gradient, or the type of its error."""
    try:
        made = function(x)
    except (RuntimeError, IndexError, NotImplementedError, TypeError, ValueError) as error:
        return type(error)
    several = list(made) if isinstance(made, (list, tuple)) else [made]
    floats = [one for one in several if one.is_floating_point() and one.requires_grad]
    if floats:
        sum(
            torch.sum(one * torch.cos(torch.arange(one.numel())).view(one.shape)) for one in floats
        ).backward()
    return several


def _on_parts(grid, function, whole, learns):
    local = Part.of(whole, grid).local.clone().requires_grad_(learns)
    x = Part.here(local, whole.shape, grid)
    made = _outcome(function, x)
    if isinstance(made, type):
        return made, None
    gradient = None if local.grad is None else Part.here(local.grad, whole.shape, grid).gather()
    return [one.detach().gather() for one in made], gradient


def compare_function(function, whole, grids, tolerance, learns=True, exact=False):
    """On parts, the results, types, gradients or errors of the global tensor, or its exact results."""
    learns = learns and whole.is_floating_point()
    alone = whole.clone().requires_grad_(learns)
    expected = _outcome(function, alone)
    wanted = alone.grad
    if exact:
        alone = whole.double().requires_grad_()
        expected = [
            one.to(other.dtype) for one, other in zip(_outcome(function, alone), expected, strict=True)
        ]
        wanted = alone.grad.to(whole.dtype)
    for axes in grids:
        with uni.local_grid(**axes) as local:
            for found, gradient in local.run(_on_parts, function, whole, learns):
                if isinstance(expected, type):
                    assert found is expected, (axes, found, expected)
                    continue
                assert not isinstance(found, type), (axes, found)
                pairs = [*zip(found, expected, strict=True)]
                if wanted is not None:
                    pairs.append((gradient, wanted))
                for one, other in pairs:
                    assert (one.dtype, one.shape) == (other.dtype, other.shape), axes
                    largest = (
                        other.detach().double().nan_to_num(0, 0, 0).abs().max().item() if other.numel() else 0
                    )
                    close = tolerance * max(1, largest) if one.is_floating_point() else 0
                    torch.testing.assert_close(one, other.detach(), rtol=0, atol=close, equal_nan=True)
