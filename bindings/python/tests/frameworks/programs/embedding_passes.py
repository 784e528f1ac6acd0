"""Backward passes of embeddings: several lookups, nested and failed passes, threads, graphs of gradients."""

import gc
import threading
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import unisono as uni
from embedding_common import DIM, ROWS, TOGETHER, adds, initial
from torch_common import N, equal
from unisono.torch import Embedding


class Broken(torch.autograd.Function):
    """Its backward pass fails."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError


class Within(torch.autograd.Function):
    """Calls a function in the middle of a backward pass, which may make a pass of its own."""

    @staticmethod
    def forward(ctx, x, call):
        ctx.call = call
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            ctx.call()
        return gradient, None


def raises(error, call, word=""):
    try:
        call()
    except error as caught:
        assert word in str(caught), caught
    else:
        raise AssertionError(f"expected {error.__name__}")


def used_twice():
    """A module that a model uses twice gets one step for each backward pass."""
    alone = nn.Embedding.from_pretrained(initial(), freeze=False)
    steps = torch.optim.Adagrad(alone.parameters(), lr=0.2)
    shared = Embedding(ROWS, DIM, lr=0.2, init=initial(), consistency=TOGETHER)
    for left, right in ((torch.tensor([1, 2, 2]), torch.tensor([2, 3, 1])),) * 3:
        steps.zero_grad()
        (alone(left) * alone(right)).sum().backward()
        steps.step()
        (shared(left) * shared(right)).sum().backward()
    equal(shared.weight, alone.weight.detach())
    assert adds(shared) == 3

    # A pass that fails leaves nothing behind for the next one.
    rows = shared(torch.tensor([5]))
    raises(ArithmeticError, (rows.sum() + Broken.apply(shared(torch.tensor([6]))).sum()).backward)
    before = adds(shared)
    shared(torch.tensor([7])).sum().backward()
    assert adds(shared) == before + 1
    after = shared.weight
    equal(after[5:7], initial()[5:7])
    assert not torch.equal(after[7], initial()[7])


def nested():
    """A backward pass within another: neither loses a gradient, whichever collects first."""
    for early in (True, False):
        shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=0, consistency=TOGETHER)

        def inner(shared=shared):
            (shared(torch.tensor([2, 2])) * shared(torch.tensor([2, 4]))).sum().backward()
            shared(torch.tensor([2])).sum().backward()

        # Functions run in the reverse order of the forward pass: with `early`, row 1 precedes the inner pass.
        first = None if early else shared(torch.tensor([1]))
        middle = Within.apply(shared(torch.tensor([3])), inner)
        first = shared(torch.tensor([1])) if early else first
        (first.sum() + middle.sum()).backward()
        # All rows are zero, so the product's gradients are, too: only the pass of the sum changes row 2.
        equal(shared.weight[:5, 0], torch.tensor([0.0, -1.0, -1.0, -1.0, 0.0]))
        gc.collect()
        assert not len(shared._passes)


def nested_failures():
    """A nested pass that fails leaves nothing behind, and the pass around it goes on; so does the reverse."""
    shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=0, consistency="bsp:mean")

    def inner():
        rows = Broken.apply(shared(torch.tensor([5])))
        # The last lookup is collected before `Broken` runs.
        raises(ArithmeticError, (rows.sum() + shared(torch.tensor([6])).sum()).backward)

    middle = Within.apply(shared(torch.tensor([3])), inner)
    (middle.sum() + shared(torch.tensor([1])).sum()).backward()
    expected = torch.zeros(8)
    expected[[1, 3]] = -1.0
    equal(shared.weight[:8, 0], expected)
    assert adds(shared) == 1
    gc.collect()
    assert not len(shared._passes)

    # The outer pass fails after the nested one has ended; gradients kept by no_sync survive both.
    with shared.no_sync():
        shared(torch.tensor([7])).sum().backward()
    rows = Broken.apply(Within.apply(shared(torch.tensor([3])), lambda: None))
    raises(ArithmeticError, (rows.sum() + shared(torch.tensor([4])).sum()).backward)
    shared(torch.tensor([1])).sum().backward()
    expected[1] -= 1
    expected[7] -= 1
    equal(shared.weight[:8, 0], expected)
    assert adds(shared) == 2


def checkpointed():
    """Lookups that are made again: one step for each pass, with gradients of the rows of the forward pass."""
    for reentrant in (False, True):
        for updater, optimizer in (("sgd", torch.optim.SGD), ("adagrad", torch.optim.Adagrad)):
            alone = nn.Embedding.from_pretrained(initial(), freeze=False)
            steps = optimizer(alone.parameters(), lr=0.2)
            shared = Embedding(ROWS, DIM, updater=updater, lr=0.2, init=initial(), consistency=TOGETHER)

            def loss(rows, reentrant=reentrant):
                x = torch.ones(DIM, requires_grad=True)
                for ids in (torch.tensor([1, 2]), torch.tensor([2, 3])):
                    x = checkpoint(lambda x, ids=ids: x * rows(ids).sum(0), x, use_reentrant=reentrant)
                return x.sum()

            for _ in range(2):
                steps.zero_grad()
                loss(alone).backward()
                steps.step()
                loss(shared).backward()
            equal(shared.weight, alone.weight.detach())
            assert adds(shared) == 2


def overwritten():
    """Ids that the caller overwrites: an error before the backward pass, and no effect after it."""
    for padding in (None, 9):
        shared = Embedding(ROWS, DIM, padding, updater="sgd", lr=1.0, init=0)
        for kind in (torch.int64, torch.int32):
            ids = torch.tensor([1, 2], dtype=kind)
            rows = shared(ids)
            ids += 2
            if kind == torch.int64:
                raises(RuntimeError, rows.sum().backward, "inplace")
        # The pass of int32 ids has a copy of them.
        rows.sum().backward()
        ids.fill_(5)
        reused = torch.tensor([7, 7])
        with shared.no_sync():
            for row in (3, 4):
                reused.fill_(row)
                shared(reused).sum().backward()
        reused.fill_(6)
        shared(reused[:1]).sum().backward()
        reused.fill_(8)
        shared.table.flush()
        uni.barrier()
        expected = torch.zeros(10)
        expected[[1, 2, 3, 4, 6]] = torch.tensor([-1.0, -1.0, -2.0, -2.0, -1.0]) * N
        equal(shared.weight[:10, 0], expected)
        uni.barrier()


def graphs():
    """Retained graphs and graphs of gradients."""
    shared = Embedding(ROWS, DIM, updater="sgd", lr=0.25, init=1, consistency=TOGETHER)
    loss = shared(torch.tensor([1, 1])).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    raises(RuntimeError, loss.backward, "second time")
    equal(shared.weight[1], torch.zeros(DIM))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a cycle of references
        with shared.no_sync():
            (shared(torch.tensor([2])) ** 2).sum().backward(create_graph=True)
        assert not shared._kept[0][1].requires_grad
        (shared(torch.tensor([2])) ** 2).sum().backward(create_graph=True)
    equal(shared.weight[2], torch.zeros(DIM))
    # The gradient of a part of the graph changes no rows.
    rows = shared(torch.tensor([3]))
    (first,) = torch.autograd.grad((rows**3).sum(), rows, create_graph=True)
    first.sum().backward()  # 3 * 2 * rows
    equal(shared.weight[3], torch.full((DIM,), 1 - 0.25 * 6))
    assert adds(shared) == 4


def threads():
    """Backward passes of two threads at the same time."""
    shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=0)
    met, errors = threading.Barrier(2), []

    def train(row):
        try:
            middle = Within.apply(shared(torch.tensor([row + 10])), lambda: met.wait(60))
            # The last lookup is collected first: both threads have collected when they meet.
            (middle.sum() + shared(torch.tensor([row, row])).sum()).backward()
        except BaseException as error:
            errors.append(error)

    both = [threading.Thread(target=train, args=(row,)) for row in (1, 2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert not errors, errors
    assert adds(shared) == 2
    uni.barrier()
    expected = torch.zeros(13)
    expected[[1, 2]] = -2.0 * N
    expected[[11, 12]] = -1.0 * N
    equal(shared.weight[:13, 0], expected)


def unbounded_passes():
    """Nested passes, no_sync and ids of other types on a table of keys."""
    shared = Embedding(None, 2, updater="sgd", lr=1.0, init=0, consistency=TOGETHER)
    far = torch.tensor([-(2**62), 2**63 - 1])
    with shared.no_sync():
        shared(far).sum().backward()
    small = torch.tensor([5], dtype=torch.int32)
    Within.apply(shared(far[:1]), lambda: shared(small).sum().backward()).sum().backward()
    equal(shared(torch.tensor([-(2**62), 2**63 - 1, 5])).detach()[:, 0], torch.tensor([-2.0, -1.0, -1.0]))


def scaled():
    """A factor of the loss that an optimizer would remove, as of a GradScaler, is removed by a hook."""
    shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=0, consistency=TOGETHER)
    rows = shared(torch.tensor([1]))
    rows.register_hook(lambda gradient: gradient / 1024)
    (rows.sum() * 1024).backward()
    equal(shared.weight[1], torch.full((DIM,), -1.0))
