"""If ranks disagree, all of them raise an error; arguments on which they agree are used as intended."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from compare import check, compare
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part, RegionDataset, broadcast_parameters, spatial, verify


def on(axes, function):
    with uni.local_grid(**axes) as local:
        return local.run(function)


def test_different_weights_on_a_rank_are_named():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2))
    part = torch.arange(32.0).reshape(1, 1, 4, 8)

    def rank(grid):
        own = copy.deepcopy(module)
        if grid.rank == 1:
            own[0].bias.data += 1
        model = spatial(own, grid)
        words = (
            rf"rank {grid.rank}: spatial: .*another 0\.bias on rank 1 than on rank 0; .*broadcast_parameters"
        )
        for _ in range(2):
            with pytest.raises(uni.UsageError, match=words):
                model(part + grid.rank)
        with pytest.raises(uni.UsageError, match=r"another 0\.bias on rank 1"):
            verify(own, grid, torch.ones(1, 1, 8, 8), show=False)
        broadcast_parameters(own, group=grid.group)
        model(part + grid.rank)
        # Only one rank loads another state.
        if grid.rank == 2:
            model.load_state_dict({name: one + 1 for name, one in model.state_dict().items()})
        with pytest.raises(uni.UsageError, match=r"another 0\.weight on rank 2"):
            model(part + grid.rank)

    on({"h": 3}, rank)


def test_weights_that_diverge_are_named():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2))
    whole = torch.randn(1, 1, 9, 8)

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid, compare_every=3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1 if grid.rank != 1 else 0.2)
        part = Part.of(whole, grid)
        words = rf"rank {grid.rank}: spatial: .*another [01]\.(weight|bias) on rank 1 than on rank 0"
        with pytest.raises(uni.UsageError, match=words):
            for _ in range(4):
                model(part).square().sum().backward()
                optimizer.step()
        # Parameters that are NaN on all ranks have not diverged; neither have those that differ by rounding.
        with torch.no_grad():
            for one in model.parameters():
                one.fill_(float("nan"))
            model.module[1].running_mean.fill_(1 + 1e-7 * grid.rank)
            model.module[1].running_var.fill_(1)
        for _ in range(4):
            model.eval()(part)
        model.compare_every = 0
        assert copy.deepcopy(model).compare_every == 0

    on({"h": 3}, rank)


def test_regions_with_a_halo_are_rejected():
    volume = np.random.default_rng(0).normal(size=(2, 3, 9, 8))

    def rank(grid):
        model = spatial(nn.ReLU(), grid)
        for halo in (1, 2):
            regions = RegionDataset(volume, grid, halo=halo)
            with pytest.raises(
                uni.UsageError, match=rf"overlap by {2 * halo} elements along w.*without halo="
            ):
                model(torch.stack([regions[0], regions[1]]))
        regions = RegionDataset(volume, grid)
        assert model(torch.stack([regions[0], regions[1]])).shape == (2, 3, 9, 8)
        # Repeating patterns are not halos.
        board = (
            (torch.arange(16)[:, None] + torch.arange(16)[None]).remainder(2).double().expand(1, 1, 16, 16)
        )
        rows = torch.randn(1, 1, 16, 1, generator=torch.Generator().manual_seed(1)).expand(1, 1, 16, 16)
        for whole in (board, rows, torch.zeros(1, 1, 16, 16)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model(Part.of(whole, grid).local)

    on({"h": 2, "w": 2}, rank)


def test_nested_models_are_rejected():
    def rank(grid):
        inner = spatial(nn.ReLU(), grid)
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: spatial: .*layer '0' of spatial"):
            spatial(nn.Sequential(inner), grid)

        class Hidden(nn.Module):
            def forward(self, x):
                return inner(x)

        with pytest.raises(uni.Unsupported, match="call spatial once"):
            spatial(Hidden(), grid)(Part.of(torch.zeros(1, 1, 4, 4), grid))

    on({"h": 2}, rank)


class Statistics(nn.Module):
    """Buffers that `forward` writes, as moving averages do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("size", torch.zeros(2))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        x = self.conv(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean((0, 2, 3)), alpha=0.1)
            self.size.lerp_(x.abs().amax((0, 2, 3)), 0.3)
            self.count += 1
        return (x - self.mean.view(1, 2, 1, 1)) / self.size.view(1, 2, 1, 1)


def test_buffers_that_forward_writes():
    whole = torch.randn(2, 1, 7, 5, dtype=torch.float64)
    compare(Statistics().double(), whole, [{"h": 2, "w": 2}, {"data": 2, "h": 4}], passes=3)

    class Kept(nn.Conv2d):
        def forward(self, x):
            return torch.zeros(1, 1, 4, 4).add_(super().forward(x))

    def rank(grid):
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: spatial: Kept: .*write to for add_"):
            spatial(copy.deepcopy(module), grid)(Part.of(torch.zeros(1, 1, 4, 4), grid))

    module = Kept(1, 1, 3, padding=1)
    on({"h": 2}, rank)


def test_a_full_sample_on_every_rank_warns():
    whole = torch.randn(1, 1, 8, 8)

    def rank(grid):
        model = spatial(nn.ReLU(), grid)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(whole)
            grid.group.barrier()
        return [str(one.message) for one in caught]

    messages = [one for found in on({"h": 2}, rank) for one in found]
    assert any("Part.of(sample, grid)" in one for one in messages)


def test_samples_of_verify_that_differ_are_named():
    def rank(grid):
        with pytest.raises(uni.UsageError, match=r"verify: expected the same whole sample .* on rank 1"):
            verify(nn.ReLU(), grid, torch.full((1, 1, 4, 8), float(grid.rank)), show=False)

    on({"h": 2}, rank)


def test_arguments_that_are_not_tensors_are_named():
    def rank(grid):
        model = spatial(nn.ReLU(), grid)
        with pytest.raises(uni.UsageError, match=r"received a numpy.ndarray of the shape \(1, 1, 4, 8\)"):
            model(np.zeros((1, 1, 4, 8)))
        with pytest.raises(uni.UsageError, match=r"Tensor of the shape \(4, 8\) and torch.float32; pass"):
            model(torch.zeros(4, 8))
        part = Part.of(torch.zeros(1, 1, 8, 8), grid)
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: fft_fft2: expected a rule"):
            torch.fft.fft2(part)
        with pytest.raises(uni.UsageError, match=rf"rank {grid.rank}: add: expected operands"):
            part + torch.zeros(3, 3)

    on({"h": 2}, rank)


def test_compiled_modules_are_rejected():
    uni.init()
    grid = uni.Grid(h=1, w=1)
    net = nn.Sequential(nn.Conv2d(1, 1, 3))
    net[0].compile()
    with pytest.raises(uni.Unsupported, match=r"rank 0: spatial: .*torch.compile is not supported"):
        spatial(net, grid)
    with warnings.catch_warnings():
        # PyTorch advises against it. It knows builtins by their addresses,
        # and may take a list for one that had the same address: this module has no attributes.
        warnings.simplefilter("ignore")
        net[0] = torch.jit.script(nn.Identity())
    with pytest.raises(uni.Unsupported, match=r"rank 0: spatial: .*torch.jit.script is not supported"):
        spatial(net, grid)


def test_models_are_copied_and_not_pickled():
    module = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Dropout(0.5)).double().eval()

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid, overlap=True)
        other = copy.deepcopy(model)
        assert other.grid is grid and other.overlap and not other.training
        assert other.module is not model.module and list(other.state_dict()) == list(model.state_dict())
        with torch.no_grad():
            for one in other.parameters():
                one.mul_(0)
        assert model.module[0].weight.any() and not other.module[0].weight.any()
        part = Part.of(torch.randn(1, 1, 8, 8, dtype=torch.float64), grid)
        assert not other(part).gather().any()
        with pytest.raises(uni.UsageError, match=r"save model\.state_dict"):
            pickle.dumps(model)
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: __reduce_ex__: .*part.gather"):
            pickle.dumps(part.detach())
        again = pickle.loads(pickle.dumps(part.mean().detach()))
        assert not isinstance(again, Part) and torch.equal(again, part.mean().local)
        twice = copy.deepcopy(part)
        assert twice.place is part.place and torch.equal(twice.local, part.local)

    on({"h": 2}, rank)


def test_targets_may_be_the_full_tensor_a_part_or_this_ranks_elements():
    module = nn.Conv2d(1, 3, 3, padding=1).double()
    whole = torch.randn(2, 1, 9, 7, dtype=torch.float64)
    classes = torch.randint(0, 3, (2, 9, 7))
    values = torch.rand(2, 3, 9, 7, dtype=torch.float64)

    def dice(out, kind):
        wanted = functional.one_hot(kind, 3).movedim(-1, 1)
        found = out.softmax(1)
        both = (found * wanted).sum((2, 3))
        return 1 - (2 * both / (found.sum((2, 3)) + wanted.sum((2, 3)))).mean()

    losses = {
        "classes": (functional.cross_entropy, classes),
        "values": (functional.mse_loss, values),
        "probabilities": (functional.cross_entropy, values.softmax(1)),
        "dice": (dice, classes),
    }
    expected = {name: loss(module(whole), target).detach() for name, (loss, target) in losses.items()}

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        out = model(Part.of(whole, grid))
        for name, (loss, target) in losses.items():
            own = target[uni.GlobalArray(target.shape, grid).region]
            given = [target, model.part(own, target.shape), Part.of(target, grid)]
            given += [own] if loss is not dice else []
            for one in given:
                check({name: expected[name]}, {name: loss(out, one).local.detach()}, 1e-12)
        with pytest.raises(uni.UsageError, match=rf"rank {grid.rank}: cross_entropy: expected targets"):
            functional.cross_entropy(out, classes[:, :2, :2])

    on({"h": 2, "w": 2}, rank)


def test_indexing_by_tensors():
    whole = torch.randn(2, 3, 6, 5, dtype=torch.float64)
    chosen = whole.argmax(1, keepdim=True)
    rows = torch.tensor([4, 0, 4])
    results = {
        "gather": lambda x, k: torch.gather(x, 1, k),
        "rows": lambda x, k: x.index_select(2, rows),
        "channels": lambda x, k: x.index_select(1, torch.tensor([2, 0])),
        "along": lambda x, k: torch.take_along_dim(x, k, 1),
        "scatter": lambda x, k: torch.zeros(2, 3, 6, 5).scatter(1, k, 1.0),
        "divided": lambda x, k: torch.gather(x, 2, k.expand(2, 3, 6, 5)),
        "mask": lambda x, k: x[x > 0],
        "selected": lambda x, k: torch.masked_select(x, x > 0),
        "one hot": lambda x, k: functional.one_hot(k[:, 0]),
    }

    def rank(grid):
        x, kinds = Part.of(whole, grid), Part.of(chosen, grid)
        for name, function in results.items():
            expected = function(whole, chosen)
            for index in (kinds, chosen) if name == "gather" else (kinds,):
                assert torch.equal(function(x, index).gather(), expected), name
        with pytest.raises(uni.Unsupported, match=rf"rank {grid.rank}: scatter_: .*call scatter"):
            torch.zeros(2, 3, 6, 5).scatter_(1, kinds, 1.0)

    on({"h": 2, "w": 2}, rank)


def test_autocast_gives_the_types_of_one_process():
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 2)
    )
    whole = torch.randn(1, 1, 8, 8)

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model(Part.of(whole, grid)).dtype == module(whole).dtype == torch.bfloat16

    on({"h": 2}, rank)
