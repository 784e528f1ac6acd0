"""Convolutions and ReLUs as one kernel, in inference; a CPU function replaces the kernel."""

import copy

import pytest
import torch
from torch import nn

import unisono as uni
from unisono.torch import Part, spatial
from unisono.torch.space import border_convolution, fusing

GRIDS = [{"h": 1}, {"w": 2}, {"h": 3}, {"h": 2, "w": 2}, {"h": 3, "w": 2}]


@pytest.fixture
def kernel(monkeypatch):
    """Replaces the kernel; its list has the sizes of the inputs with which it was called."""
    seen = []

    def cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups):
        assert type(x) is torch.Tensor and not x.requires_grad
        seen.append(tuple(x.shape))
        zeros = [0] * len(stride)
        return torch.convolution(x, weight, bias, stride, padding, dilation, False, zeros, groups).relu()

    monkeypatch.setattr(torch, "cudnn_convolution_relu", cudnn_convolution_relu)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(fusing, "DEVICES", ("cpu",))
    monkeypatch.setattr(fusing, "TYPES", (torch.float32, torch.float64))
    monkeypatch.setattr(fusing, "_suitable", fusing.LruCache(8))
    monkeypatch.setattr(border_convolution, "WORTHWHILE", 0)
    return seen


def network(kind=nn.Conv2d, **options):
    torch.manual_seed(1)
    inner = nn.Sequential(kind(4, 4, 5, padding="same", **options), nn.ReLU(inplace=True))
    layers = [kind(3, 4, 3, padding=1), nn.ReLU(), inner, kind(4, 4, 1), nn.ReLU(), kind(4, 2, 3, padding=1)]
    return nn.Sequential(*layers).double()


def infer(grid, module, whole, change=None):
    """A model's result on the ranks of a grid, and its module afterwards."""
    module = copy.deepcopy(module)
    if change is not None:
        change(module)
    state = {name: one.clone() for name, one in module.state_dict().items()}
    before = [set(vars(one)) for one in module.modules()]
    model = spatial(module, grid)
    with torch.no_grad():
        found = model(Part.of(whole, grid).local).gather()
    assert [set(vars(one)) for one in module.modules()] == before
    torch.testing.assert_close(module.state_dict(), state, rtol=0, atol=0)
    return found


def compare(module, whole, grids, change=None):
    with torch.no_grad():
        expected = module(whole)
    for axes in grids:
        with uni.local_grid(**axes) as local:
            for found in local.run(infer, module, whole, change):
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"dilation": 2}, {"groups": 2}], ids=str)
def test_fused_inference_equals_one_process(kernel, options):
    compare(network(**options), torch.randn(2, 3, 29, 23, dtype=torch.float64), GRIDS)
    assert kernel, "this path was not used"


def test_volumes_are_fused(kernel):
    compare(network(nn.Conv3d), torch.randn(1, 3, 11, 9, 13, dtype=torch.float64), [{"d": 2, "w": 2}])
    assert kernel


def test_the_part_and_its_ends_are_computed_by_the_kernel(kernel):
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
    compare(module, torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}])
    # Strips have halos on all sides.
    assert set(kernel) == {(1, 3, 8, 8), (1, 3, 3, 10)}


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3, padding=1)),
        nn.ConvTranspose2d(3, 4, 3, padding=1),
        nn.Conv2d(3, 4, 3, stride=2),
        type("Mine", (nn.Conv2d,), {})(3, 4, 3, padding=1),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_are_not_fused(kernel, layer):
    module = nn.Sequential(layer, nn.ReLU()).double()
    compare(module, torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}])
    assert not kernel


class Twice(nn.Sequential):
    def forward(self, input):
        return 2 * super().forward(input)


@pytest.mark.parametrize("kind", [Twice, nn.ModuleList], ids=lambda kind: kind.__name__)
def test_other_containers_are_not_fused(kernel, kind):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = kind([]) if kind is nn.ModuleList else kind()
            self.layers.extend([nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()])

        def forward(self, x):
            return self.layers(x) if kind is Twice else self.layers[1](self.layers[0](x))

    compare(Net().double(), torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}])
    assert not kernel


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "register",
    ["register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"],
)
def test_hooks_see_the_intermediate_value(kernel, place, register):
    seen = []

    def change(module):
        getattr(module[place], register)(lambda one, *values: seen.append(values[-1]))

    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
    compare(module, torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}], change)
    assert not kernel
    if (place, register) == (0, "register_forward_hook"):
        assert any((one.local < 0).any() for one in seen if not one.placeholder)


def test_global_hooks_see_the_intermediate_value(kernel):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda one, *_: seen.append(type(one)))
    try:
        module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
        compare(module, torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}])
    finally:
        handle.remove()
    assert not kernel and nn.Conv2d in seen


def test_training_keeps_the_intermediate_value(kernel):
    module = network()
    with uni.local_grid(h=2) as local:

        def learn(grid):
            mine = copy.deepcopy(module)
            x = Part.of(torch.ones(1, 3, 12, 8, dtype=torch.float64), grid).local
            spatial(mine, grid)(x).square().mean().backward()
            for one in mine.parameters():
                one.requires_grad_(False)
            for_input = x.clone().requires_grad_()
            spatial(mine, grid)(for_input).square().mean().backward()
            assert not kernel and for_input.grad is not None
            grid.group.barrier()
            # Neither the input nor the weights: no gradient is needed.
            spatial(mine, grid)(x)

        local.run(learn)
    assert kernel


def test_plain_tensors_and_single_layers_are_not_fused(kernel):
    module = network()
    with uni.local_grid(h=2) as local:

        def rank(grid):
            mine = copy.deepcopy(module)
            model = spatial(mine, grid)
            x = torch.randn(1, 3, 12, 8, dtype=torch.float64)
            with torch.no_grad():
                model(x)
                grid.group.barrier()
                count = len(kernel)
                grid.group.barrier()
                assert (mine[0](x) < 0).any() and mine(x).shape == (1, 2, 12, 8)
                part = Part.of(x, grid)
                assert (mine[0](part).local < 0).any()
                assert len(kernel) == count

        local.run(rank)


def test_invalid_shapes_are_rejected_as_without_fusion(kernel):
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
    with uni.local_grid(h=2) as local, pytest.raises(RuntimeError, match="to have 3 channels"):
        local.run(infer, module, torch.ones(1, 5, 16, 8, dtype=torch.float64))
    assert not kernel


def test_large_arrays_are_not_fused(kernel, monkeypatch):
    monkeypatch.setattr(fusing, "LARGEST", 3 * 8 * 8)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
    compare(module, torch.randn(1, 3, 16, 8, dtype=torch.float64), [{"h": 2}])
    assert not kernel
    compare(module, torch.randn(1, 3, 8, 8, dtype=torch.float64), [{"h": 2}])
    assert kernel


@pytest.fixture
def possible(kernel):
    """Whether a convolution and a ReLU can be one kernel."""
    with uni.local_grid(h=1) as local:
        part = local.run(lambda grid: Part.of(torch.ones(1, 3, 8, 8), grid))[0]
        yield lambda layer: fusing.is_possible(layer, nn.ReLU(), part)


def test_settings_that_prevent_fusion(possible, monkeypatch):
    layer = nn.Conv2d(3, 4, 3)
    assert not possible(layer), "weights need gradients"
    layer.requires_grad_(False)
    assert possible(layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert not possible(layer)
    assert not possible(copy.deepcopy(layer).double()), "types differ"
    for name, value in (("enabled", False), ("deterministic", True)):
        with monkeypatch.context() as change:
            change.setattr(torch.backends.cudnn, name, value)
            assert not possible(layer)
    with monkeypatch.context() as change:
        change.setattr(torch.backends.cudnn, "is_available", lambda: False)
        assert not possible(layer)
    with monkeypatch.context() as change:
        change.setattr(fusing, "DEVICES", ("cuda",))
        assert not possible(layer)
    assert possible(layer)


@pytest.mark.parametrize("fault", ["zeros for NaN", "no kernel"])
def test_kernels_with_different_results_are_not_used(kernel, monkeypatch, fault):
    good, tried = torch.cudnn_convolution_relu, []

    def cudnn_convolution_relu(*arguments):
        tried.append(arguments)
        if fault == "no kernel":
            raise RuntimeError("GET was unable to find an engine to execute this computation")
        return good(*arguments).nan_to_num(nan=0.0)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", cudnn_convolution_relu)
    whole = torch.randn(1, 3, 16, 8, dtype=torch.float64)
    whole[0, 0, 4, 4] = float("nan")
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).double()
    with torch.no_grad():
        expected = module(whole)
    assert expected.isnan().any()
    with uni.local_grid(h=2) as local:
        for _ in range(2):
            for found in local.run(infer, module, whole):
                torch.testing.assert_close(found, expected, equal_nan=True)
    assert 2 <= len(tried) <= 4, "each kind is tried once, or by both ranks at once"
