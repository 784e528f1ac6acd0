"""Parameters of special kinds, checkpoints that run backward again, and parameters that change."""

import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import unisono as uni
from torch_common import N, equal, fails, on_all_ranks, world
from unisono.torch import DistributedDataParallel, average_gradients


class Spectral(nn.Module):
    """A layer with complex parameters, one of which gets a gradient with the lazy conjugate bit."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6, dtype=torch.complex64))
        self.phase = nn.Parameter(torch.full((6, 6), 0.5j))
        self.width = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return (torch.fft.fft(x) * self.scale @ self.phase).real.square().mean() + (x * self.width).mean()


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(6, 3, sparse=True)
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        return self.last(self.rows(x.abs().long() % 6)).square().mean()


class Mixed(nn.Module):
    """Parameters whose memory order differs from the order of their axes."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1).to(memory_format=torch.channels_last)
        self.last = nn.Linear(8, 2)
        self.last.weight = nn.Parameter(self.last.weight.detach().t().contiguous().t())
        assert not self.first.weight.is_contiguous() and not self.last.weight.is_contiguous()

    def forward(self, x):
        image = x.reshape(-1, 1, 1, 6).expand(-1, 3, 6, 6).contiguous(memory_format=torch.channels_last)
        return self.last(self.first(image).relu().mean(dim=(2, 3))).square().mean()


def kinds():
    """Complex and sparse gradients, and those with their own memory format."""
    data = torch.arange(6.0 * 2 * N).reshape(2 * N, 6) / 7
    mine = data.tensor_split(N)[world.rank]
    for make in (Spectral, Sparse, Mixed):
        torch.manual_seed(0)
        alone = make()
        alone(data).backward()
        wrapped = DistributedDataParallel(copy.deepcopy(alone))
        for _ in range(2):  # the second time, gradients are views of the buckets
            wrapped.zero_grad(set_to_none=False)
            wrapped(mine).backward()
        for one, other in zip(alone.parameters(), wrapped.module.parameters(), strict=True):
            assert N == 1 or other.grad.stride() == other.stride()
            equal(other.grad.to_dense(), one.grad.to_dense(), 1e-4)
        if make is Sparse:
            continue
        averaged = copy.deepcopy(alone)
        averaged.zero_grad()
        averaged(mine).backward()
        average_gradients(averaged)
        for one, other in zip(alone.parameters(), averaged.parameters(), strict=True):
            equal(other.grad, one.grad, 1e-4)
        for options in ({"consistency": "bsp"}, {"mode": "average"}, {"mode": "average", "background": True}):
            model = copy.deepcopy(alone)
            with torch.no_grad():
                for one in model.parameters():
                    one.fill_(world.rank)
            with uni.ParameterManager(model, **options) as manager:
                for one in model.parameters():
                    assert (one == 0).all(), "the first worker's values win"
                    one.data += (world.rank + 1) * (1 + 1j if one.is_complex() else 1)
                manager.sync()
                manager.flush()
                total = N * (N + 1) / 2 / (N if "mode" in options else 1)
                for one in model.parameters():
                    equal(one, torch.full_like(one, total * (1 + 1j) if one.is_complex() else total))
    alone = copy.deepcopy(alone)
    wrapped = DistributedDataParallel(copy.deepcopy(alone))
    for model, part in ((alone, data), (wrapped, mine)):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        for _ in range(3):
            optimizer.zero_grad()
            model(part).backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), wrapped.module.parameters(), strict=True):
        equal(other, one)


def checkpoints():
    """A backward pass nested in another, with parts of different sizes; passes before others have ended."""
    data = torch.arange(20.0 * N, dtype=torch.float64).reshape(5 * N, 4) / 10
    part = data.tensor_split([1] + [2 + 3 * one for one in range(1, N - 1)])[world.rank] if N > 1 else data
    for reentrant in (False, True):
        torch.manual_seed(0)
        layers = nn.ModuleList(nn.Linear(4, 4).double() for _ in range(4))

        class Model(nn.Module):
            def __init__(self, layers):
                super().__init__()
                self.layers = layers

            def forward(self, x, reentrant=reentrant):
                x = self.layers[0](x)
                for one in self.layers[1:]:
                    x = checkpoint(lambda x, one=one: one(x).tanh(), x, use_reentrant=reentrant)
                return x

        alone = Model(layers)
        model = DistributedDataParallel(Model(copy.deepcopy(layers)))
        alone(data).square().mean().backward()
        for _ in range(2):
            model.zero_grad()
            model.weigh(len(part))
            model(part).square().mean().backward()
            for one, other in zip(alone.parameters(), model.parameters(), strict=True):
                equal(other.grad, one.grad, 1e-9)
        model.zero_grad()
        model(data * (world.rank + 1)).sum().backward()  # without a weight again
        on_all_ranks(model.module)
        alone.zero_grad()
        for rank in range(N):
            (alone(data * (rank + 1)).sum() / N).backward()
        for one, other in zip(alone.parameters(), model.parameters(), strict=True):
            equal(other.grad, one.grad, 1e-9)
    model = DistributedDataParallel(nn.BatchNorm1d(4).double())
    (model(data).square().sum() + model(data * 2).square().sum()).backward()


def changed():
    """Parameters that were added, replaced, unfrozen or converted: errors, and a new wrapper handles them."""
    data = torch.full((2, 3), world.rank + 1.0)

    def trained(model):
        model.zero_grad()
        model(data).square().mean().backward()
        for one in model.parameters():
            if one.grad is not None:
                assert all(torch.equal(one.grad, other) for other in uni.all_gather(one.grad))

    def unfreeze(net):
        net[0].weight.requires_grad_(True)

    def replace(net):
        net[1] = nn.Linear(3, 1)

    def add(net):
        net.append(nn.Linear(1, 1))

    for change, name in ((unfreeze, "'0.weight'"), (replace, "'1.weight'"), (add, "'2.weight'")):
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        net[0].weight.requires_grad_(False)
        model = DistributedDataParallel(net)
        trained(model)
        managers = {
            options.get("mode", "delta"): uni.ParameterManager(net, **options)
            for options in ({"consistency": "bsp"}, {"mode": "average"}, {"mode": "gradients"})
        }
        change(net)
        fails(lambda model=model: model(data), name, "added, replaced or unfrozen", "wrap the module")
        with torch.no_grad():
            model(data)
        model = DistributedDataParallel(model.module)
        trained(model)
        hooks = net[0].bias._post_accumulate_grad_hooks or {}
        assert len(hooks) == (N > 1), "the former wrapper is gone"
        net[0].bias.requires_grad_(False)
        trained(model)  # without one that is frozen later
        for manager in managers.values():
            if change is not unfreeze:
                fails(manager.sync, name, "replaced" if change is replace else "added", "a new manager")
            else:
                manager.sync()
    model = DistributedDataParallel(nn.Linear(3, 1))
    model.double()
    fails(lambda: model(data.double()), "'weight'", "torch.float64", "was torch.float32", "wrap the module")
    data = data.double()
    model = DistributedDataParallel(model.module)  # the former wrapper would average, too
    trained(model)
    weights = [torch.zeros(2)]
    manager = uni.ParameterManager(weights)
    weights[0] = torch.ones(2)
    fails(manager.sync, "'0'", "replaced")
