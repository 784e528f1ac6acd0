"""Random layers and suitable shapes."""

import torch
from torch import nn

PADDINGS = ["zeros", "reflect", "replicate", "circular"]


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function, *children):
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(children)

    def forward(self, x):
        return self.function(x, *self.parts)


def number(random, low, high):
    return int(torch.randint(low, high + 1, (), generator=random))


def choice(random, options):
    return options[number(random, 0, len(options) - 1)]


def sizes(random, dims, low=7, high=13):
    return [number(random, low, high) for _ in range(dims)]


def convolution(random, dims):
    make = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
    kernel = [number(random, 1, 4) for _ in range(dims)]
    dilation = [number(random, 1, 2) for _ in range(dims)]
    groups = choice(random, [1, 2])
    if choice(random, [True, False, False]):
        layer = make(4, 6, kernel, padding="same", dilation=dilation, groups=groups)
    else:
        stride = [number(random, 1, 3) for _ in range(dims)]
        padding = [number(random, 0, 3) for _ in range(dims)]
        mode = choice(random, PADDINGS)
        layer = make(
            4, 6, kernel, stride, padding, dilation, groups, choice(random, [True, False]), padding_mode=mode
        )
    return layer, [2, 4, *sizes(random, dims)]


def transposed(random, dims):
    make = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}[dims]
    kernel = [number(random, 2, 4) for _ in range(dims)]
    stride = [number(random, 1, 3) for _ in range(dims)]
    padding = [number(random, 0, one - 1) for one in kernel]
    dilation = [number(random, 1, 2) for _ in range(dims)]
    extra = [number(random, 0, max(a, b) - 1) for a, b in zip(stride, dilation, strict=True)]
    groups = choice(random, [1, 2])
    layer = make(4, 6, kernel, stride, padding, extra, groups, dilation=dilation)
    return layer, [2, 4, *sizes(random, dims, 3, 7)]


def maximum(random, dims):
    make = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}[dims]
    kernel = number(random, 1, 4)
    layer = make(
        kernel,
        choice(random, [None, 1, 2, 3]),
        kernel // 2,
        number(random, 1, 2),
        ceil_mode=choice(random, [True, False]),
    )
    return layer, [2, 3, *sizes(random, dims)]


def average(random, dims):
    make = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}[dims]
    kernel = number(random, 1, 4)
    options = {"divisor_override": choice(random, [None, 5])} if dims > 1 else {}
    layer = make(
        kernel,
        choice(random, [None, 1, 2, 3]),
        number(random, 0, kernel // 2),
        choice(random, [True, False]),
        choice(random, [True, False]),
        **options,
    )
    return layer, [2, 3, *sizes(random, dims)]


def power(random, dims):
    make = {1: nn.LPPool1d, 2: nn.LPPool2d, 3: nn.LPPool3d}[dims]
    layer = make(
        2, number(random, 1, 3), choice(random, [None, 1, 2]), ceil_mode=choice(random, [True, False])
    )
    return layer, [2, 3, *sizes(random, dims)]


def adaptive(random, dims):
    kind = choice(random, ["Avg", "Max"])
    make = getattr(nn, f"Adaptive{kind}Pool{dims}d")
    return make([number(random, 1, 5) for _ in range(dims)]), [2, 3, *sizes(random, dims)]


def batch(random, dims):
    make = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[dims]
    layer = make(
        4,
        momentum=choice(random, [0.1, 0.5, None]),
        affine=choice(random, [True, False]),
        track_running_stats=choice(random, [True, False]),
    )
    return layer.train(choice(random, [True, True, False])), [2, 4, *sizes(random, dims, 3)]


def instance(random, dims):
    make = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[dims]
    layer = make(4, affine=choice(random, [True, False]), track_running_stats=choice(random, [True, False]))
    return layer.train(choice(random, [True, True, False])), [2, 4, *sizes(random, dims, 3)]


def group(random, dims):
    return nn.GroupNorm(choice(random, [1, 2, 4]), 4), [2, 4, *sizes(random, dims, 3)]


def layer(random, dims):
    shape = [2, 3, *sizes(random, dims, 3)]
    if choice(random, [True, False]):
        return nn.LayerNorm(shape[-number(random, 1, dims + 1) :]), shape
    last = nn.LayerNorm(3)
    return Apply(lambda x, norm: norm(x.movedim(1, -1)).movedim(-1, 1), last), shape


def resize(random, dims):
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[dims]
    mode = choice(random, ["nearest", "nearest-exact", "area", *smooth, *smooth])
    corners = choice(random, [True, False]) if mode in smooth else None
    shape = [2, 3, *sizes(random, dims, 3, 8)]
    if choice(random, [True, False]) or mode == "area":
        return nn.Upsample(size=sizes(random, dims, 2, 15), mode=mode, align_corners=corners), shape
    # PyTorch's gradient of "nearest" in three dimensions is wrong for other factors, according to gradcheck.
    fractions = [] if dims == 3 and mode == "nearest" else [1.5, 0.6, 2.3]
    factor = choice(random, [2, 3, *fractions])
    return nn.Upsample(scale_factor=factor, mode=mode, align_corners=corners), shape


def pad(random, dims):
    kind = choice(random, ["Zero", "Constant", "Reflection", "Replication", "Circular"])
    margins = [number(random, 0, 3) for _ in range(2 * dims)]
    make = getattr(nn, f"{kind}Pad{dims}d")
    made = make(margins, 2.5) if kind == "Constant" else make(margins)
    return made, [2, 3, *sizes(random, dims, 5)]


def crop(random, dims):
    margins = [number(random, -2, 2) for _ in range(2 * dims)]
    return Apply(lambda x: nn.functional.pad(x, margins)), [2, 3, *sizes(random, dims)]


def head(random, dims):
    shape = [2, 3, *sizes(random, dims, 2, 6)]
    count = torch.Size(shape[1:]).numel()
    return nn.Sequential(nn.ReLU(), nn.Flatten(), nn.ReLU(), nn.Linear(count, 5), nn.Linear(5, 3)), shape


def last_dimension(random, dims):
    shape = [2, 3, *sizes(random, dims, 3)]
    return nn.Linear(shape[-1], 4), shape


def dropout(random, dims):
    make = choice(random, [nn.Dropout, getattr(nn, f"Dropout{dims}d"), nn.AlphaDropout])
    return nn.Sequential(make(0.4), make(0.2)), [2, 8, *sizes(random, dims, 3)]


def pieces(random, dims):
    cuts = [
        lambda x: torch.cat([x[:, :1], x * 2], 1),
        lambda x: torch.cat([x, x.flip(-1)], -1),
        lambda x: x[..., 1:-1],
        lambda x: x[..., ::2] + 1,
        lambda x: torch.stack(x.chunk(3, 1)).sum(0),
        lambda x: x.mean(-1, keepdim=True) * x,
        lambda x: x * torch.sigmoid(x.mean(tuple(range(2, x.dim())), keepdim=True)),
        lambda x: (x - x.mean()) / x.std(),
        lambda x: x.transpose(1, -1).contiguous().relu(),
        lambda x: torch.softmax(x, 1) + torch.softmax(x, -1),
        lambda x: x.view(x.shape[0], 3, -1).sum(2),
        lambda x: torch.where(x > 0, x, x.amax(1, keepdim=True)),
        lambda x: x.flatten(2).transpose(1, 2) @ torch.ones(3, 2, dtype=x.dtype),
        lambda x: x.select(-1, 1) * x.unbind(1)[0].sum(),
        lambda x: x.var((1, -1), keepdim=True) + x,
        lambda x: x + torch.arange(x.shape[-1], dtype=x.dtype),
        lambda x: x.unsqueeze(1).squeeze(1).expand_as(x).clamp(min=-0.5),
    ]
    return Apply(choice(random, cuts)), [2, 3, *sizes(random, dims, 4)]


KINDS = [
    convolution,
    transposed,
    maximum,
    average,
    power,
    adaptive,
    batch,
    instance,
    group,
    layer,
    resize,
    pad,
    crop,
    head,
    last_dimension,
    dropout,
    pieces,
]
GRIDS = {
    1: [{"w": 2}, {"w": 3}, {"w": 4}, {"data": 2, "w": 2}],
    2: [{"w": 3}, {"h": 2}, {"h": 2, "w": 2}, {"h": 3, "w": 2}, {"data": 2, "h": 2}],
    3: [{"d": 2}, {"h": 2, "w": 2}, {"d": 2, "h": 1, "w": 3}],
}


def random_case(kind, seed):
    """A layer in double precision, an input for it, and a grid."""
    random = torch.Generator().manual_seed(seed)
    dims = number(random, 1, 3)
    torch.manual_seed(seed)
    module, shape = kind(random, dims)
    for one in module.parameters():
        nn.init.normal_(one)
    whole = torch.randn(shape, dtype=torch.float64, generator=random)
    return module.double(), whole, choice(random, GRIDS[dims])
