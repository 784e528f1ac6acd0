"""An error of one rank is raised on all, before any communication if possible, and the next call works."""

import copy
import threading
import time
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn import functional

import unisono as uni
import unisono.halo.window
import unisono.torch
from unisono.torch import Part, spatial


def on(axes, function):
    with uni.local_grid(**axes) as local:
        return local.run(function)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        (lambda x: x[0, 0], "expected a tensor of 4 or more dimensions"),
        (lambda x: x.tolist(), "expected a tensor of 4 or more dimensions .*received list"),
        (lambda x: x.to_sparse(), "in the form torch.sparse_coo; convert it"),
        (lambda x: x.to("meta"), "received one on meta"),
    ],
    ids=["dimensions", "no tensor", "sparse", "meta"],
)
def test_arguments_that_one_rank_rejects(spoilt, words):
    def rank(grid):
        model = spatial(nn.Identity(), grid)
        x = torch.zeros(1, 1, 4, 4)
        where = "" if grid.rank == 1 else "on rank 1: "
        with pytest.raises(uni.UsageError, match=f"^rank {grid.rank}: spatial: {where}.*{words}"):
            model(spoilt(x) if grid.rank == 1 else x)
        assert model(x).shape == (1, 1, 12, 4)

    on({"h": 3}, rank)


class Fails(nn.Module):
    """Raises on one rank alone, in the dry run or in the pass."""

    def __init__(self):
        super().__init__()
        self.error, self.in_dry_run = None, False

    def forward(self, x):
        if self.error is not None and x.is_meta == self.in_dry_run:
            raise self.error
        return x - x.mean()


@pytest.mark.parametrize("kind", [uni.Unsupported, uni.UsageError], ids=lambda one: one.__name__)
def test_a_dry_run_that_one_rank_rejects(kind):
    def rank(grid):
        module = Fails()
        model = spatial(module, grid)
        module.error, module.in_dry_run = (
            kind("expected this, received that") if grid.rank == 1 else None,
            True,
        )
        where = "" if grid.rank == 1 else "on rank 1: "
        for _ in range(2):
            with pytest.raises(kind, match=rf"^rank {grid.rank}: spatial: {where}Fails: expected this"):
                model(Part.of(torch.ones(1, 1, 6, 4), grid))
        module.error = None
        assert not model(Part.of(torch.ones(1, 1, 6, 4), grid)).gather().any()

    on({"h": 3}, rank)


def test_a_pass_that_fails_on_one_rank():
    def rank(grid):
        module = Fails()
        model = spatial(module, grid)
        part = Part.of(torch.ones(1, 1, 6, 4), grid)
        model(part)
        start = time.monotonic()
        module.error = ZeroDivisionError("here") if grid.rank == 1 else None
        if grid.rank == 1:
            with pytest.raises(ZeroDivisionError, match="here"):
                model(part)
        else:
            with pytest.raises(
                uni.UsageError, match=f"^rank {grid.rank}: spatial: on rank 1: ZeroDivisionError: here"
            ) as caught:
                model(part)
            assert caught.value.number is not None
        # Long before the timeout.
        assert time.monotonic() - start < 20
        module.error = None
        assert not model(part).gather().any()
        # An error of all ranks.
        module.error = ValueError("everywhere")
        with pytest.raises(ValueError, match="everywhere"):
            model(part)
        module.error = None
        assert not model(part).gather().any()

    on({"h": 3}, rank)


@contextmanager
def raised_on(grid, rank, kind, words):
    """Expects an error of one rank on all ranks, long before the timeout."""
    start = time.monotonic()
    mine = grid.rank == rank
    expected = words if mine else f"^rank {grid.rank}: .*on rank {rank}: .*{words}"
    with pytest.raises(kind if mine else uni.Error, match=expected):
        yield
    assert time.monotonic() - start < 100


@pytest.mark.parametrize("axes", [{"h": 3}, {"data": 2, "h": 2}], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_loss_that_one_rank_rejects(axes, reduction):
    """The others continue to the sum over all ranks, along one axis or several, or to their next call."""

    def rank(grid):
        model = spatial(nn.Conv2d(1, 3, 3, padding=1).double(), grid)
        unisono.torch.broadcast_parameters(model, group=grid.group)
        scores = model(Part.of(torch.ones(2, 1, 6, 4).double(), grid))
        classes = torch.zeros(2, 6, 4, dtype=torch.long)
        spoilt = Part.of(classes, grid).local.clone()
        if grid.rank == 1:
            spoilt[0, 0, 0] = 7
        for name in (functional.cross_entropy, functional.nll_loss):
            with raised_on(grid, 1, IndexError, "Target 7 is out of bounds"):
                name(scores, spoilt, reduction=reduction).sum()
        with raised_on(grid, 1, uni.UsageError, "expected targets of the shape"):
            functional.cross_entropy(scores, spoilt[:, :1] if grid.rank == 1 else spoilt.zero_()).item()
        # Earlier results remain usable, and so does the group of the grid.
        grid.group.barrier()
        functional.cross_entropy(scores, classes).backward()
        assert model.module.weight.grad.any()

    on(axes, rank)


def test_an_exchange_that_fails_on_one_rank(monkeypatch):
    """One rank has no memory for the padded part, or another type: the others are in the exchange."""
    allocate, failing = unisono.halo.window.empty_like, set()

    def empty_like(x, shape):
        if threading.get_ident() in failing:
            raise MemoryError("no memory for the padded part")
        return allocate(x, shape)

    monkeypatch.setattr(unisono.halo.window, "empty_like", empty_like)

    def rank(grid):
        whole = torch.ones(1, 1, 12, 4)
        conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        torch.nn.init.ones_(conv.weight)

        def pooled(x):
            return functional.avg_pool2d(x, 3, 1, 1)

        for run in (pooled, spatial(conv, grid), spatial(conv, grid, overlap=True)):
            for _ in range(2):
                expected = run(Part.of(whole, grid)).gather()
                if grid.rank == 2:
                    failing.add(threading.get_ident())
                with raised_on(grid, 2, MemoryError, "no memory for the padded part"):
                    # Ranks that are not neighbours learn of it in their next call.
                    run(Part.of(whole, grid)).gather()
                failing.discard(threading.get_ident())
                assert torch.equal(run(Part.of(whole, grid)).gather(), expected)
        with pytest.raises(uni.Error):
            pooled(Part.of(whole.double() if grid.rank == 2 else whole, grid)).gather()
        assert torch.equal(pooled(Part.of(whole, grid)).gather(), pooled(whole))
        grid.group.barrier()

    on({"h": 4}, rank)


class FailsBackward(torch.autograd.Function):
    """Raises in backward on one rank alone."""

    @staticmethod
    def forward(context, x, error):
        context.error = error
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        if context.error is not None:
            raise context.error
        return gradient, None


class Stack(nn.Module):
    """Convolutions, between which a function raises in backward."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)
        self.error, self.hooks = None, False

    def forward(self, x):
        x = self.first(x)
        if self.hooks:
            x.register_hook(self.hook)
        elif not x.is_meta:
            x = Part.here(FailsBackward.apply(x.local, self.error), x.shape, x.grid)
        return self.last(x)

    def hook(self, gradient):
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("hooks", [False, True], ids=["function", "hook"])
def test_a_backward_that_fails_on_one_rank(hooks):
    whole, stack = torch.randn(1, 1, 9, 4), Stack()
    stack.hooks = hooks

    def rank(grid):
        module = copy.deepcopy(stack)
        model = spatial(module, grid)

        def step(loss, backward):
            module.zero_grad()
            backward(loss(model(Part.of(whole, grid))))
            return module.first.weight.grad.clone()

        def mean(out):
            return out.square().mean()

        def plain(out):
            return out.gather().square().mean()

        expected = step(mean, torch.Tensor.backward)
        for loss, backward, words in (
            (mean, torch.Tensor.backward, "here"),
            (mean, torch.autograd.backward, "here"),
            (mean, lambda loss: torch.autograd.grad(loss, list(module.parameters())), "here"),
            (plain, torch.Tensor.backward, None),
        ):
            module.error = ZeroDivisionError("here") if grid.rank == 1 else None
            if words is None:
                # If the pass does not end in a part, the others learn the rank, and its output has the cause.
                start = time.monotonic()
                kind = ZeroDivisionError if grid.rank == 1 else uni.PeerLost
                with pytest.raises(kind, match="here" if grid.rank == 1 else "rank 1"):
                    step(loss, backward)
                assert time.monotonic() - start < 100
            else:
                with raised_on(grid, 1, ZeroDivisionError, words):
                    step(loss, backward)
            module.error = None
            torch.testing.assert_close(step(loss, torch.Tensor.backward), expected)
        grid.group.barrier()

    on({"h": 3}, rank)


WEIGHT = torch.ones(1, 1, 3, 3)
REJECTED = {
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), torch.uint8, 3),
    "unfold": (lambda x: functional.unfold(x, 3, padding=1, stride=2), torch.uint8, 3),
    "conv2d": (lambda x: functional.conv2d(x, WEIGHT, None, 2, 1), torch.float64, 3),
    "conv2d of rows": (lambda x: functional.conv2d(x, WEIGHT[:, :, :1, :1]), torch.float64, 2),
    "conv_transpose2d": (lambda x: functional.conv_transpose2d(x, WEIGHT[..., :1, :1]), torch.float64, 2),
}


@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@pytest.mark.parametrize("name", REJECTED)
def test_ranks_without_outputs_reject_what_pytorch_rejects(name, overlap):
    """The last rank has no outputs, and computes none."""
    function, dtype, rows = REJECTED[name]
    module = type("Module", (nn.Module,), {"forward": lambda self, x: function(x)})

    def rank(grid):
        part = Part.of(torch.zeros(1, 1, rows, 5).to(dtype), grid)
        for run in (function, spatial(module(), grid, overlap=overlap)):
            with pytest.raises((RuntimeError, uni.UsageError)) as caught:
                run(part)
            grid.group.barrier()
        return type(caught.value), str(caught.value)

    first, *others = on({"h": 3}, rank)
    assert all(one[0] is first[0] for one in others), (first, others)


class Volumes(nn.Module):
    """A pooling that autocast computes in single precision, and a gate of one element."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv3d(1, 2, 3, padding=1)
        self.pool = nn.AvgPool3d(3, 2, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Conv3d(2, 2, 1))
        self.last = nn.Conv3d(2, 1, 3, padding=1)

    def forward(self, x):
        x = self.pool(self.conv(x))
        return self.last(functional.max_pool3d(x, 3, 1, 1) * torch.sigmoid(self.gate(x)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, None], ids=str)
def test_types_on_ranks_without_outputs(dtype):
    module, whole = Volumes(), torch.randn(1, 1, 3, 6, 6)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        expected = module(whole).detach()

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            found = model(Part.of(whole, grid))
            torch.testing.assert_close(found.detach().gather(), expected, rtol=0.02, atol=0.02)
        found.float().sum().backward()
        # Integers keep their type, too.
        numbers = torch.arange(15, dtype=torch.uint8).view(1, 1, 3, 5)
        pooled = functional.max_pool2d(Part.of(numbers, grid, {"d": 2}), 3, 2, 1)
        assert torch.equal(pooled.gather(), functional.max_pool2d(numbers.float(), 3, 2, 1).byte())

    on({"d": 3}, rank)
