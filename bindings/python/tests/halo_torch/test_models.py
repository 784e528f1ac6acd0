"""Modules of other kinds: conditions, gates, attention, tied weights, several inputs and outputs."""

import torch
from compare import check, compare
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part, spatial

GRIDS = [{"h": 2, "w": 2}, {"w": 3}]


class Gate(nn.Module):
    """Squeeze and excitation: Hu et al., 2017."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 1)
        )

    def forward(self, x):
        x = self.conv(x)
        return x * torch.sigmoid(self.squeeze(x)), x.mean((2, 3))


class Patches(nn.Module):
    """Patches, positions, attention between all of them, and a head: Dosovitskiy et al., 2020."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.positions = nn.Parameter(torch.randn(1, 20, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.positions
        x = self.layer(x)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(1))


class ConvNext(nn.Module):
    """Depthwise windows, layer normalisation with channels last, and a scale: Liu et al., 2022."""

    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2d(6, 6, 7, padding=3, groups=6)
        self.norm = nn.LayerNorm(6)
        self.wide, self.narrow = nn.Linear(6, 24), nn.Linear(24, 6)
        self.gamma = nn.Parameter(torch.full((6,), 0.5))
        self.shuffle = nn.PixelShuffle(2)
        self.unshuffle = nn.PixelUnshuffle(2)
        self.stem = nn.Conv2d(12, 6, 1)

    def forward(self, x):
        x = self.stem(self.unshuffle(x))
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.narrow(functional.gelu(self.wide(y)))
        x = x + y.permute(0, 3, 1, 2)
        return self.shuffle(torch.cat([x, x[:, :2]], 1))


class Tied(nn.Module):
    """One convolution used twice, weights with weight normalisation, and a learned map of the global size."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular")
        self.weighted = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 3, 3, padding=1))
        self.map = nn.Parameter(torch.randn(3, 16, 20))
        self.slope = nn.PReLU(3)

    def forward(self, x):
        return self.slope(self.conv(self.weighted(self.conv(x)) + self.map))


def test_gates():
    compare(Gate().double(), torch.randn(2, 3, 16, 20, dtype=torch.float64), GRIDS)


def test_attention_between_patches():
    compare(Patches().double(), torch.randn(2, 3, 16, 20, dtype=torch.float64), GRIDS)


def test_channels_last_and_pixel_shuffle():
    compare(ConvNext().double(), torch.randn(2, 3, 18, 22, dtype=torch.float64), GRIDS)


def test_weights_used_twice_and_maps_of_the_global_size():
    compare(Tied().double(), torch.randn(2, 3, 16, 20, dtype=torch.float64), GRIDS)


class Conditioned(nn.Module):
    """Two images, and a time that every rank has."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 6))
        self.conv = nn.Conv2d(4, 6, 3, padding=1)
        self.out = nn.Conv2d(6, 1, 3, padding=1)

    def forward(self, x, time, *, other, scale=1.0):
        table = torch.exp(-torch.arange(2, device=x.device, dtype=x.dtype))
        angles = time[:, None] * table[None]
        condition = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        h = self.conv(torch.cat([x, other], dim=1)) + condition[:, :, None, None]
        return self.out(functional.silu(h)) * scale, condition


def test_conditions_and_several_inputs():
    module = Conditioned().double()
    x, other = torch.randn(2, 2, 3, 9, 8, dtype=torch.float64).unbind(0)
    x, other = x[:, :3], other[:, :1]
    time = torch.randn(2, dtype=torch.float64)

    def results(module, model, x, time, other):
        module.zero_grad()
        image, condition = model(x, time, other=other, scale=0.5)
        (image.square().sum() + condition.square().sum()).backward()
        found = {name: one.grad.clone() for name, one in module.named_parameters()}
        return {**found, "time": time.grad, "condition": condition.detach()}

    def rank(grid):
        import copy

        own = copy.deepcopy(module)
        when = time.clone().requires_grad_()
        pair = [Part.of(one, grid) for one in (x, other)]
        found = results(own, spatial(own, grid), pair[0], when, pair[1].local)
        return {**found, "condition": found["condition"].gather()}

    when = time.clone().requires_grad_()
    expected = results(module, module, x, when, other)
    with uni.local_grid(h=2, w=2) as local:
        for found in local.run(rank):
            check(expected, found, 1e-10)


def test_scatter_and_gather():
    whole = torch.arange(2 * 9 * 7.0).reshape(1, 2, 9, 7)

    def rank(grid):
        model = spatial(nn.Identity(), grid)
        part = model.scatter(whole if grid.rank == 1 else None, root=1)
        out = model(part)
        assert out.array.region == part.array.region
        assert torch.equal(out.gather(), whole) and torch.equal(out.local, whole[out.array.region])
        assert torch.equal(model(model.part(part.local, whole.shape)).gather(), whole)
        x = part.local.clone().requires_grad_()
        (model(x).gather() * whole).sum().backward()
        assert torch.equal(x.grad, whole[part.array.region])

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


def test_new_shapes_need_no_new_model():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)).double()
    for shape in [(1, 1, 8, 8), (3, 1, 8, 8), (1, 1, 5, 11), (2, 1, 3, 1)]:
        compare(module, torch.randn(shape, dtype=torch.float64), [{"h": 2, "w": 2}])


class Spectral(nn.Module):
    """Complex Fourier weights: Li et al., 2020, and a complex convolution."""

    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.conv = nn.Conv2d(2, 2, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(2, 16, 11, dtype=torch.complex128, generator=draw))
        self.kernel = nn.Parameter(torch.randn(2, 2, 3, 3, dtype=torch.complex128, generator=draw))

    def forward(self, x):
        x = self.conv(x)
        found = torch.fft.irfft2(torch.fft.rfft2(x.gather() if isinstance(x, Part) else x) * self.weight)
        mixed = functional.conv2d((x + found) * self.kernel.sum((0, 1))[:1, :1], self.kernel, padding=1)
        return mixed.abs(), found


def test_complex_weights():
    whole = torch.randn(2, 2, 16, 20, dtype=torch.float64)
    compare(Spectral().double(), whole, [{"h": 2, "w": 2}, {"w": 3}], passes=2)

    values = torch.complex(whole, whole.flip(0))

    def rank(grid):
        # Lazily conjugated or negated views, too.
        for one in (values, values.conj(), values.conj().imag):
            part = Part.of(one, grid)
            assert torch.equal(part.gather(), one)
            torch.testing.assert_close(part.sum().local, one.sum())

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)
