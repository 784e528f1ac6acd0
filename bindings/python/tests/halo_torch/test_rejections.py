"""Unsupported operations are rejected by name, before any communication."""

import copy

import pytest
import torch
from layers import Apply
from torch import nn

import unisono as uni
from unisono.torch import Part, spatial


class Body(nn.Module):
    """A layer with a name."""

    def __init__(self, inner):
        super().__init__()
        self.stem = nn.Conv2d(1, 1, 3, padding=1)
        self.inner = inner

    def forward(self, x):
        return self.inner(self.stem(x))


def on(axes, function):
    with uni.local_grid(**axes) as local:
        return local.run(function)


@pytest.mark.parametrize(
    "inner, words",
    [
        (Apply(torch.fft.fft2), r"rank \d: spatial: layer 'inner' \(Apply\): .*fft_fft2"),
        (nn.FractionalMaxPool2d(2, 3), r"layer 'inner' \(FractionalMaxPool2d\): .*fractional_max_pool2d"),
        (nn.MaxPool2d(2, return_indices=True), r"layer 'inner' \(MaxPool2d\): .*max_pool2d_with_indices"),
        (nn.Sequential(nn.ReLU(), nn.Conv2d(1, 1, 20)), r"layer 'inner.1' \(Conv2d\): .*within 8 inputs"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), None),
        (nn.Linear(5, 2), r"layer 'inner' \(Linear\): linear: expected 5 inputs"),
        (nn.ReflectionPad2d(9), r"layer 'inner' \(ReflectionPad2d\): reflect padding: expected at most"),
        (nn.GroupNorm(1, 1), None),
        (nn.PixelShuffle(2), r"layer 'inner' \(PixelShuffle\): pixel_shuffle: .* shape \(1, 1, 8, 9\)"),
        (nn.PixelUnshuffle(2), r"layer 'inner' \(PixelUnshuffle\): pixel_unshuffle: .* received 2; "),
        (nn.Unfold(9), r"layer 'inner' \(Unfold\): unfold: .* shape \(1, 1, 8, 9\), received 9, "),
        (nn.Unfold(7), None),
    ],
    ids=str,
)
def test_unsupported_layers_are_named(inner, words):
    module = Body(inner)

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        part = Part.of(torch.zeros(1, 1, 8, 9), grid)
        if words is None:
            return model(part)
        with pytest.raises(uni.Error, match=words) as caught:
            model(part)
        assert str(caught.value).startswith(f"rank {grid.rank}: ")
        # Nothing has been sent: the ranks are still synchronized.
        grid.group.barrier()
        return None

    on({"h": 2, "w": 2}, rank)


def test_parts_of_wrong_shapes_are_named():
    module = nn.Conv2d(1, 1, 3)

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        with pytest.raises(uni.UsageError, match=r"received \(1, 1, 3, 6\) on rank 0; of \(1, 1, 8, 6\)"):
            model(torch.zeros(1, 1, 3 if grid.rank == 0 else 5, 6))
        with pytest.raises(
            uni.UsageError, match="expected the same call on every rank, received another one on rank 1"
        ):
            model(torch.zeros(1, 1, 4, 6, dtype=torch.float32 if grid.rank == 0 else torch.float64))
        with pytest.raises(uni.UsageError, match="requires_grad"):
            model(torch.zeros(1, 1, 4, 6, requires_grad=grid.rank == 0))
        with pytest.raises(uni.UsageError, match=r"received \(1, 1, 4, 7\) on rank 1"):
            model(torch.zeros(1, 1, 4, 6 + grid.rank))
        with pytest.raises(uni.UsageError, match=rf"rank {grid.rank}: Part: expected this rank's part"):
            Part.here(torch.zeros(1, 1, 4, 5), (1, 1, 8, 6), grid)
        with pytest.raises(uni.UsageError, match="another one on rank 1"):
            model.train(grid.rank == 0)(torch.zeros(1, 1, 4, 6))
        model.train()
        assert model(torch.zeros(1, 1, 4, 6)).shape == (1, 1, 6, 4)

    on({"h": 2}, rank)


def test_unsuitable_grids_are_named():
    def rank(grid):
        with pytest.raises(uni.UsageError, match="axes data, d, h or w, received rows"):
            spatial(nn.ReLU(), grid)

    on({"rows": 2}, rank)
    uni.init()
    with pytest.raises(uni.UsageError, match="which make 4"):
        uni.Grid(h=2, w=2)
    grid = uni.Grid(h=1, w=1)
    with pytest.raises(uni.UsageError, match="expected a tensor of 4 or more dimensions for the axes h, w"):
        spatial(nn.Conv1d(1, 1, 3), grid)(torch.zeros(1, 1, 8))


def test_plain_tensors_of_wrong_shapes_are_named():
    def rank(grid):
        part = Part.of(torch.zeros(1, 1, 8, 8), grid)
        with pytest.raises(uni.UsageError, match=r"model\.part"):
            part + torch.zeros(1, 1, 4, 8)
        assert (part + torch.ones(8, 8)).gather().sum() == 64

    on({"h": 2}, rank)


def test_a_model_keeps_its_names_and_its_modes():
    uni.init()
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())
    model = spatial(net, uni.Grid(h=1, w=1))
    assert list(model.state_dict()) == list(net.state_dict())
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in net.named_parameters()]
    model.eval()
    assert not net.training and not net[1].training
    model.load_state_dict({name: torch.zeros_like(one) for name, one in net.state_dict().items()})
    assert not net[0].weight.any()
    model.double()
    assert net[0].weight.dtype == torch.float64
    outer = nn.ModuleDict({"body": model})
    assert list(outer.state_dict()) == [f"body.{name}" for name in net.state_dict()]
    outer.load_state_dict(outer.state_dict())
    assert "Part of (1, 2, 6, 6)" in repr(model(torch.ones(1, 1, 8, 8, dtype=torch.float64)))


def test_other_kinds_of_tensors_and_calls_are_named():
    module = nn.Conv2d(1, 1, 3, padding=1)

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        part = Part.of(torch.zeros(1, 1, 8, 8), grid)
        with pytest.raises(uni.UsageError, match=r"in the form torch\.sparse_coo; .*to_dense"):
            model(part.local.to_sparse())
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: spatial: .*transform of torch\.func"):
            torch.func.grad(lambda x: model(x).sum())(part.local)
        with pytest.raises(
            uni.UsageError, match=rf"rank {grid.rank}: spatial: .*received weight on the device"
        ):
            spatial(copy.deepcopy(module).to("meta"), grid)(part)
        model.compile()
        with pytest.raises(uni.Unsupported, match=r"torch\.compile is not supported"):
            model(part)

    on({"h": 2}, rank)
