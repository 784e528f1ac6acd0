"""Functions that models call in `forward`, on parts and on one process."""

import pytest
import torch
from compare import compare
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part

GRIDS = [{"h": 3}, {"h": 2, "w": 2}, {"data": 2, "h": 2}, {"h": 6}, {"w": 2}, {"h": 2, "w": 3}]


class Between(nn.Module):
    """A convolution, and a function of its output and some parameters."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Conv2d(3, 3, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(3, 3, 3, 3))
        self.scale = nn.Parameter(torch.randn(3))
        self.function = function

    def forward(self, x):
        return self.function(self, self.first(x))


def per_channel(own):
    return own.scale.view(3, 1, 1)


def standardised(own):
    mean, std = own.weight.mean((1, 2, 3), keepdim=True), own.weight.std((1, 2, 3), keepdim=True)
    return (own.weight - mean) / std


def finer(columns):
    """Convex upsampling: each pixel becomes four means of its neighbours, as in optical flow."""
    means = columns.view(4, 3, 9, 1, 1, 5, 7) * torch.linspace(0, 1, 36, dtype=columns.dtype).view(
        9, 2, 2, 1, 1
    )
    return means.sum(2).permute(0, 1, 4, 2, 5, 3).reshape(4, 3, 10, 14)


LABELS = torch.randint(0, 3, (4, 5, 7), generator=torch.Generator().manual_seed(3))
# The first rows, which are all that a rank has on some grids, belong to no class.
PARTLY = torch.cat([torch.full((4, 2, 7), 255), LABELS[:, 2:]], 1)


def class_losses(own, x):
    """Segmentation losses, with all arguments on which their means depend."""
    weight = own.scale.detach().abs()
    partly = {"ignore_index": 255}
    return (
        functional.cross_entropy(x, PARTLY, weight, **partly),
        functional.cross_entropy(x, PARTLY, **partly, label_smoothing=0.2),
        functional.cross_entropy(x, PARTLY, weight, **partly, label_smoothing=0.2, reduction="sum"),
        functional.cross_entropy(x, PARTLY, weight, **partly, reduction="none"),
        functional.nll_loss(x.log_softmax(1), torch.where(PARTLY == 255, -100, PARTLY), weight),
        functional.nll_loss(x.log_softmax(1), LABELS, weight, ignore_index=1),
        functional.cross_entropy(x, x.detach().softmax(1), weight, label_smoothing=0.1),
        functional.cross_entropy(x, LABELS, size_average=False),
        functional.cross_entropy(x.mean((0, 2, 3)), torch.tensor(2)),
        # If all targets are ignored, PyTorch's mean is NaN.
        functional.cross_entropy(x, torch.full_like(LABELS, 255), weight, **partly).isnan() * x.mean(),
    )


FUNCTIONS = {
    "conv2d": lambda own, x: functional.conv2d(x, own.weight, own.scale, stride=2, padding=1),
    "conv2d, depthwise": lambda own, x: functional.conv2d(x, own.weight[:, :1], None, 1, (2, 1), 1, 3),
    "conv2d, made weights": lambda own, x: functional.conv2d(x, standardised(own), padding=1),
    "conv_transpose2d": lambda own, x: functional.conv_transpose2d(
        x, own.weight, own.scale, stride=2, padding=1, output_padding=1
    ),
    "pad, circular": lambda own, x: functional.pad(x, (2, 1, 1, 2), mode="circular"),
    "pad, reflect": lambda own, x: functional.pad(x, (2, 1, 1, 2), mode="reflect"),
    "pad, replicate": lambda own, x: functional.pad(x, (2, 1, 1, 2), mode="replicate"),
    "pad, channels": lambda own, x: functional.pad(x, (0, 0, 0, 0, 1, 1), value=1.5),
    "interpolate": lambda own, x: functional.interpolate(x, size=(9, 4), mode="bilinear"),
    "interpolate, factor": lambda own, x: functional.interpolate(
        x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True
    ),
    "cat along h": lambda own, x: torch.cat([x, x * 2], 2),
    "cat with a plain tensor": lambda own, x: torch.cat([x, torch.ones(4, 3, 5, 2, dtype=x.dtype)], -1),
    "mean over space": lambda own, x: x.mean((2, 3)),
    "differences": lambda own, x: (x[..., 1:] - x[..., :-1], x[:, :, 1:] - x[:, :, :-1]),
    "steps": lambda own, x: x[:, :, ::2, 1::3],
    "one column": lambda own, x: x[..., -1],
    "roll": lambda own, x: torch.roll(x, (1, -2), (2, 3)),
    "roll, flat": lambda own, x: torch.roll(x, 3),
    "flip": lambda own, x: x.flip(2, 3),
    "einsum of channels": lambda own, x: torch.einsum("nchw,c->nhw", x, own.scale),
    "einsum of space": lambda own, x: torch.einsum("nchw,ncvw->nhv", x, x),
    "lp_pool2d": lambda own, x: functional.lp_pool2d(x, 2, 2, 1),
    "adaptive_avg_pool2d": lambda own, x: functional.adaptive_avg_pool2d(x, (3, None)),
    "softmax along w": lambda own, x: x.softmax(-1),
    "softmax of space": lambda own, x: functional.softmax(x.flatten(2), -1).view_as(x),
    "cumsum": lambda own, x: x.cumsum(-1),
    "largest": lambda own, x: (x.max(), x.max(1).values, x.amax((2, 3), keepdim=True)),
    "norms": lambda own, x: (x.norm(dim=1, keepdim=True), torch.linalg.vector_norm(x, dim=(2, 3))),
    "linalg.norm": lambda own, x: torch.linalg.norm(x, dim=1),
    "normalize": lambda own, x: functional.normalize(x, dim=1) + functional.normalize(x, dim=-1),
    "std": lambda own, x: x.std((2, 3), keepdim=True),
    "where": lambda own, x: torch.where(x > 0, x, per_channel(own) * x),
    "masked_fill": lambda own, x: x.masked_fill(torch.ones(5, 7).tril().bool(), 0.3),
    "lerp": lambda own, x: torch.lerp(x, x * 2, per_channel(own)),
    "clamp to a parameter": lambda own, x: x.clamp(min=per_channel(own) * 0.1),
    "clamp to a map": lambda own, x: torch.clamp(x, max=torch.zeros(5, 7, dtype=x.dtype)),
    "type of another tensor": lambda own, x: x.type_as(own.weight) + x.to(own.weight),
    "in place": lambda own, x: (x * 1).mul_(2).add_(per_channel(own)).relu_(),
    "repeat": lambda own, x: (x.repeat(1, 2, 1, 1), x.repeat(2, 1, 1, 2, 1), x.tile(2)),
    "permute and matmul": lambda own, x: x.permute(0, 2, 3, 1) @ own.weight[:, :, 0, 0],
    "matmul of space": lambda own, x: x @ x.transpose(2, 3),
    "reshape that merges": lambda own, x: x.reshape(4, 15, 7),
    "group_norm": lambda own, x: functional.group_norm(x, 3, own.scale, own.scale),
    "layer_norm": lambda own, x: functional.layer_norm(x, x.shape[1:]) + functional.layer_norm(x, (7,)),
    "instance_norm": lambda own, x: functional.instance_norm(x),
    "batch_norm": lambda own, x: functional.batch_norm(x, None, None, own.scale, own.scale, training=True),
    "attention": lambda own, x: functional.scaled_dot_product_attention(*[x.flatten(2).transpose(1, 2)] * 3),
    "linear": lambda own, x: functional.linear(x, own.weight.flatten(1)[:, :7]),
    "random channels": lambda own, x: x[:, torch.randperm(3)],
    "noise of its own": lambda own, x: x + torch.randn(x.shape, dtype=x.dtype) * torch.rand_like(x),
    "a mask for each sample": lambda own, x: x * x.new_empty((4, 1, 1, 1)).bernoulli_(0.5),
    "dropout of parameters": lambda own, x: x * functional.dropout(per_channel(own), 0.5),
    "dropout, other strides": lambda own, x: functional.dropout(x.flatten(2).transpose(1, 2), 0.4),
    "losses": lambda own, x: (
        functional.cross_entropy(x, torch.ones(4, 5, 7).long()),
        functional.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"),
        functional.huber_loss(x, torch.zeros(4, 3, 5, 7, dtype=x.dtype)),
    ),
    "losses of classes": class_losses,
    "weighted losses": lambda own, x: (
        functional.mse_loss(x, x.detach() * 2, weight=x.detach().abs()),
        functional.huber_loss(x, x.detach() * 2, weight=x.detach().abs()),
        functional.binary_cross_entropy_with_logits(
            x, x.detach().sigmoid(), pos_weight=per_channel(own).detach().abs()
        ),
        functional.l1_loss(x, x.detach() * 2, size_average=False),
    ),
    "a decision": lambda own, x: x * 2 if x.mean() > -100 else x,
    "a number": lambda own, x: x * float(x.detach().mean()),
    "unfold": lambda own, x: functional.unfold(x, 3).transpose(1, 2),
    "unfold, all options": lambda own, x: functional.unfold(x, (2, 3), (2, 1), (3, 2), (2, 3)).mT,
    "unfold, one sample": lambda own, x: nn.Unfold(2, padding=1)(x[0]).t(),
    "unfold, other dimensions": lambda own, x: functional.unfold(x.permute(0, 2, 3, 1), 2).transpose(1, 2),
    "unfold, a convolution": lambda own, x: own.weight.flatten(1) @ functional.unfold(x, 3, padding=1),
    "unfold, neighbours": lambda own, x: functional.unfold(x, 3, padding=1).view(4, 3, 9, 5, 7).amax(2),
    "unfold, finer": lambda own, x: finer(functional.unfold(x, 3, padding=1)),
    "unfold, another view": lambda own, x: functional.unfold(x, 1).view(4, 3, 7, 5),
    "unfold of h": lambda own, x: x.unfold(2, 3, 2),
    "unfold of h and w": lambda own, x: x.unfold(2, 2, 1).unfold(3, 3, 2),
    "unfold of channels": lambda own, x: x.unfold(dimension=1, size=2, step=1),
    "unfold with gaps": lambda own, x: x.unfold(3, 2, 5),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_parts_equal_functions_of_the_full_tensor(name):
    random = torch.Generator().manual_seed(0)
    whole = torch.randn(4, 3, 5, 7, dtype=torch.float64, generator=random)
    place = list(FUNCTIONS).index(name)
    # Different grids for each function: all grids for all functions would take long.
    grids = [GRIDS[place % len(GRIDS)], GRIDS[(place + 2) % len(GRIDS)]]
    compare(Between(FUNCTIONS[name]).double(), whole, grids)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_windows_and_shuffles_with_fewer_rows_than_ranks(grid):
    def each(own, x):
        return [
            functional.unfold(x, 2).transpose(1, 2),
            functional.unfold(x, 3, padding=1).view(2, 3, 9, 2, 4),
            x.unfold(2, 2, 1),
            functional.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
            functional.pixel_unshuffle(x, 2),
        ]

    whole = torch.randn(2, 3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    compare(Between(each).double(), whole, [grid])


def test_unfolded_columns_stay_on_their_rank():
    whole = torch.arange(35.0).view(1, 1, 5, 7)

    def rank(grid):
        x = Part.of(whole, grid)
        columns = functional.unfold(x, 3, padding=1)
        assert columns.shape == (1, 9, 35)
        assert columns.local.shape == (1, 9, x.local.shape[2] * x.local.shape[3])
        assert torch.equal(columns.gather(), functional.unfold(whole, 3, padding=1))
        viewed = columns.view(1, 3, 3, 5, 7)
        assert viewed.array.split == {"h": 3, "w": 4}
        assert viewed.local.data_ptr() == columns.local.data_ptr()

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


POINTWISE = """ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 SELU CELU
GELU Sigmoid SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink Softmax2d Identity"""


def test_every_pointwise_layer():
    layers = [getattr(nn, name)() for name in POINTWISE.split()]
    layers += [getattr(nn, name)(dim=1) for name in ("Softmin", "Softmax", "LogSoftmax")]
    layers += [nn.Threshold(0.1, 2.0), nn.RReLU().eval(), nn.LocalResponseNorm(2)]
    whole = torch.randn(2, 4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    class Each(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x):
            return [layer(x) for layer in self.layers]

    compare(Each().double(), whole, [{"h": 2, "w": 2}, {"data": 2, "h": 3}])


def test_maxima_of_integers_ignore_padding():
    whole = -torch.arange(1, 49, dtype=torch.int32).reshape(1, 1, 8, 6)

    def rank(grid):
        return functional.max_pool2d(Part.of(whole, grid), 3, 2, 1).local

    with uni.local_grid(h=2) as local:
        parts = local.run(rank)
    assert torch.equal(torch.cat(parts, 2), functional.max_pool2d(whole, 3, 2, 1))
