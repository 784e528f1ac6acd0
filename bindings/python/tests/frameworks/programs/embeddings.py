"""Embeddings in tables, against PyTorch's on one process that has all data."""

import copy
import pickle
import sys
from functools import partial

import torch
from torch import nn
from torch.nn import functional

import unisono as uni
from embedding_common import DIM, ROWS, TOGETHER, adds, initial
from embedding_passes import (  # noqa: F401
    checkpointed,
    graphs,
    nested,
    nested_failures,
    overwritten,
    scaled,
    threads,
    unbounded_passes,
    used_twice,
)
from torch_common import N, equal, fails, share, world
from unisono.torch import DistributedDataParallel, Embedding, EmbeddingBag

STEPS = 6


def batches(count=STEPS, size=24, everywhere=False):
    """Ids with many repeats, and targets; with `everywhere`, every worker's part has every row."""
    source = torch.Generator().manual_seed(1)
    for _ in range(count):
        ids = (torch.rand(size, generator=source) ** 3 * ROWS).long()
        if everywhere:
            ids = torch.cat([torch.cat([part, torch.arange(ROWS)]) for part in ids.tensor_split(N)])
        yield ids, torch.randn(len(ids), DIM, generator=source)


def optimizers():
    rules = {
        "sgd": (torch.optim.SGD, {"lr": 0.3}),
        "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        "nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        "adagrad": (torch.optim.Adagrad, {"lr": 0.2}),
        "rmsprop": (torch.optim.RMSprop, {"lr": 0.02}),
        "adam": (torch.optim.Adam, {"lr": 0.05}),
        "adamw": (torch.optim.AdamW, {"lr": 0.05}),
        "adamax": (torch.optim.Adamax, {"lr": 0.05}),
        "adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
    }
    for updater, (optimizer, options) in rules.items():
        # PyTorch's other rules also change rows without a gradient.
        everywhere = updater not in ("sgd", "adagrad")
        alone = nn.Embedding.from_pretrained(initial(), freeze=False)
        steps = optimizer(alone.parameters(), **options)
        shared = Embedding(ROWS, DIM, updater=updater, lr=options["lr"], init=initial(), consistency=TOGETHER)
        for ids, targets in batches(everywhere=everywhere):
            steps.zero_grad()
            functional.mse_loss(alone(ids), targets).backward()
            steps.step()
            mine, wanted = share((ids, targets))
            functional.mse_loss(shared(mine), wanted).backward()
        equal(shared.weight, alone.weight.detach())
        shared.table.finish()
        uni.barrier()


def lookups():
    alone = nn.Embedding.from_pretrained(initial(), padding_idx=4, freeze=False)
    with torch.no_grad():
        alone.weight[4] = 0
    shared = Embedding(ROWS, DIM, 4, updater="sgd", lr=0.5, init=initial(), consistency=TOGETHER)
    for shape in [(), (1,), (2, 3), (2, 0, 3), (2, 3, 4)]:
        count = torch.Size(shape).numel()
        ids = (torch.arange(count) * 7 % 9).reshape(shape)
        one, other = shared(ids), alone(ids)
        equal(one.detach(), other.detach())
        assert one.requires_grad
        grads = torch.randn(other.shape, generator=torch.Generator().manual_seed(count))
        one.backward(grads)
        other.backward(grads)
        with torch.no_grad():
            if alone.weight.grad is not None:
                alone.weight -= 0.5 * alone.weight.grad
            alone.weight.grad = None
        equal(shared.weight, alone.weight.detach())
    with torch.no_grad():
        assert not shared(torch.tensor([1])).requires_grad
    shared.requires_grad_(False)
    assert not shared(torch.tensor([1])).requires_grad
    # The result may be changed in place, as that of PyTorch's module.
    shared.requires_grad_(True)
    functional.relu(shared(torch.tensor([1])), inplace=True).sum().backward()
    assert shared.weight[4].abs().sum() == 0
    assert not shared.state_dict() and not list(shared.parameters())


def ways():
    """The arguments of a forward pass: ids, offsets, weights; and the options of the module."""
    source = torch.Generator().manual_seed(5)
    flat = (torch.rand(17, generator=source) ** 2 * ROWS).long()
    square = flat[:12].reshape(4, 3)
    offsets = torch.tensor([0, 5, 5, 6, 15])  # with an empty bag
    for mode in ("sum", "mean", "max"):
        for padding in (None, int(flat[2]), -1):
            options = {"mode": mode, "padding_idx": padding}
            yield (square, None, None), options
            yield (flat, offsets, None), options
            yield (
                (flat, torch.cat([offsets, torch.tensor([17])]), None),
                {**options, "include_last_offset": True},
            )
            yield (torch.full((3, 2), 7), None, None), {"mode": mode, "padding_idx": 7}
            yield (flat[:0], torch.tensor([0, 0]), None), options
            yield (flat[:0].reshape(0, 4), None, None), options
            if mode == "sum":
                for ids, starts in ((square, None), (flat, offsets)):
                    yield (ids, starts, torch.randn(ids.shape, generator=source)), options


def bags():
    for (ids, offsets, weights), options in ways():
        alone = nn.EmbeddingBag.from_pretrained(initial(), freeze=False, **options)
        shared = EmbeddingBag(
            ROWS, DIM, updater="sgd", lr=1.0, init=initial(), consistency=TOGETHER, **options
        )
        alone_weights, weights = (
            (None, None) if weights is None else (weights.clone().requires_grad_(), weights.requires_grad_())
        )
        for number in range(2):
            one, other = shared(ids, offsets, weights), alone(ids, offsets, alone_weights)
            equal(one.detach(), other.detach())
            grads = torch.randn(other.shape, generator=torch.Generator().manual_seed(number))
            one.backward(grads)
            other.backward(grads)
            with torch.no_grad():
                alone.weight -= alone.weight.grad
                alone.weight.grad = None
        rows = alone.weight.detach().clone()
        if shared.padding_idx is not None:
            rows[shared.padding_idx] = 0
        equal(shared.weight, rows)
        if weights is not None:
            equal(weights.grad, alone_weights.grad)


def empty_batches():
    """Workers without ids take part in each step."""
    shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=0, consistency="bsp")
    for _ in range(3):
        shared(torch.full((world.rank,), 3)).sum().backward()
    equal(shared.weight[3], torch.full((DIM,), -3.0 * sum(range(N))))


class Clicks(nn.Module):
    def __init__(self, rows, bag):
        super().__init__()
        self.rows, self.bag = rows, bag
        torch.manual_seed(0)
        self.top = nn.Sequential(nn.Linear(2 * DIM, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, ids, sets):
        return self.top(torch.cat([self.rows(ids), self.bag(sets)], 1)).squeeze(1)


def in_a_model():
    """A model whose other parameters are averaged by `DistributedDataParallel`."""
    options = {"updater": "adagrad", "lr": 0.1, "init": initial(), "consistency": TOGETHER}
    shared = Clicks(Embedding(ROWS, DIM, **options), EmbeddingBag(ROWS, DIM, mode="mean", **options))
    model = DistributedDataParallel(shared)
    alone = Clicks(
        nn.Embedding.from_pretrained(initial(), freeze=False),
        nn.EmbeddingBag.from_pretrained(initial(), freeze=False, mode="mean"),
    )
    assert list(model.state_dict()) == ["module." + name for name in shared.top.state_dict(prefix="top.")]
    dense = torch.optim.SGD(model.parameters(), lr=0.1)
    others = [
        torch.optim.SGD(alone.top.parameters(), lr=0.1),
        torch.optim.Adagrad([*alone.rows.parameters(), *alone.bag.parameters()], lr=0.1),
    ]
    source = torch.Generator().manual_seed(9)
    for _ in range(STEPS):
        ids = torch.randint(ROWS, (24,), generator=source)
        sets = torch.randint(ROWS, (24, 4), generator=source)
        clicked = (ids % 2).float()
        for optimizer in others:
            optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(alone(ids, sets), clicked).backward()
        for optimizer in others:
            optimizer.step()
        mine = share((ids, sets, clicked))
        dense.zero_grad()
        functional.binary_cross_entropy_with_logits(model(*mine[:2]), mine[2]).backward()
        dense.step()
    equal(shared.rows.weight, alone.rows.weight.detach(), 1e-4)
    equal(shared.bag.weight, alone.bag.weight.detach(), 1e-4)
    equal(shared.top[0].weight.detach(), alone.top[0].weight.detach(), 1e-4)
    before = adds(shared.rows)
    with model.no_sync():  # also of the rows
        model(*mine[:2]).sum().backward()
    assert adds(shared.rows) == before
    model(*mine[:2]).sum().backward()
    assert adds(shared.rows) == before + 1

    def join():
        with model.join():
            raise AssertionError("expected an error before the first pass")

    fails(join, "join", "bsp:mean", "async")
    with model.join(enable=False):
        model(*mine[:2]).sum().backward()
    model.apply(lambda one: one.requires_grad_(False))
    assert not model(*mine[:2]).requires_grad


def accumulated():
    shared = Embedding(ROWS, DIM, lr=0.2, init=0, consistency=TOGETHER)
    alone = nn.Embedding.from_pretrained(torch.zeros(ROWS, DIM), freeze=False)
    steps = torch.optim.Adagrad(alone.parameters(), lr=0.2)
    for _ in range(2):
        steps.zero_grad()
        with shared.no_sync():
            for ids in (torch.tensor([1, 2]), torch.tensor([2])):
                shared(ids).sum().backward()
                alone(ids).sum().backward()
        (shared(torch.tensor([3, 1])) ** 2).sum().backward()
        (alone(torch.tensor([3, 1])) ** 2).sum().backward()
        steps.step()
    equal(shared.weight, alone.weight.detach())
    assert adds(shared) == 2


def prefetched():
    shared = Embedding(ROWS, DIM, 2, updater="sgd", lr=1.0, init=initial())
    later = [torch.tensor([[1, 2], [3, 1]]), torch.tensor([4])]
    for ids in later:
        shared.prefetch(ids)
    gets = shared.table.stats().gets
    shared.table.flush()
    for ids in reversed(later):
        expected = initial()[ids]
        expected[ids == 2] = 0
        equal(shared(ids).detach(), expected)
    assert shared.table.stats().gets == 2 and gets <= 2
    equal(shared(later[1]).detach(), initial()[later[1]])
    assert shared.table.stats().gets == 3
    for number in range(8):
        shared.prefetch(torch.tensor([number]))
    fails(lambda: shared.prefetch(torch.tensor([9])), "at most 8")
    for number in range(8):
        shared(torch.tensor([number]))
    for number in range(8):
        shared.prefetch(torch.tensor([number]))
    shared.discard_prefetched()
    shared.prefetch(later[1])
    equal(shared(later[1]).detach(), initial()[later[1]])
    uni.barrier()


def prefetched_and_reused():
    """A prefetch keeps its own ids, of any type and memory format; with "bsp" it is the get of its pass."""
    for rows in (ROWS, None):
        shared = Embedding(rows, 2, padding_idx=4, updater="sgd", lr=1.0, init=1, consistency="bsp")
        square = torch.arange(12).reshape(3, 4)
        column = square[:, 1]  # not contiguous
        shared.prefetch(column)
        shared.prefetch(column.int())
        expected = torch.ones(3, 2)
        before = column.clone()
        square += 20
        gets = shared.table.stats().gets
        for ids in (before, before.to(torch.int16)):
            equal(shared(ids).detach(), expected)
        assert shared.table.stats().gets <= gets + 2
        equal(shared(column).detach(), expected)
        shared.prefetch(torch.tensor([4, 4]))  # nothing but padding
        equal(shared(torch.tensor([4])).detach(), torch.zeros(1, 2))
        uni.barrier()


def unbounded():
    """Ids of 64 bits, on a table of keys."""
    ids = torch.tensor([-(2**62), 5, 2**63 - 1, 5])
    shared = Embedding(None, 2, padding_idx=7, updater="sgd", lr=1.0, init=1, consistency="bsp")
    shared(ids).sum().backward()
    expected = torch.tensor([1.0 - N, 1.0 - 2 * N, 1.0 - N, 1.0 - 2 * N])
    equal(shared(ids).detach(), expected[:, None].expand(4, 2))
    equal(shared(torch.tensor([7, 8])).detach(), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert len(shared.table) == 3
    bag = EmbeddingBag(None, 2, mode="sum", updater="adagrad", consistency="bsp")
    first = bag(ids[:2].reshape(1, 2))
    first.sum().backward()
    assert torch.equal(bag(torch.tensor([[123456789]])), bag(torch.tensor([[123456789]])))
    fails(lambda: shared.weight, "table.arrays")


def types():
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        shared = Embedding(ROWS, DIM, updater="sgd", lr=1.0, init=1, dtype=dtype, consistency="bsp")
        bag = EmbeddingBag(
            ROWS, DIM, updater="sgd", lr=1.0, init=1, dtype=dtype, consistency="bsp", mode="sum"
        )
        for kind in (
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.uint16,
            torch.uint64,
        ):
            ids = torch.tensor([[3, 4], [3, 5]]).to(kind)
            rows = shared(ids)
            assert rows.dtype == dtype and rows.shape == (2, 2, DIM)
            equal(bag(ids).detach(), rows.detach().sum(1))
        rows.sum().backward()
        assert torch.equal(shared.weight[3:5, 0], torch.tensor([1.0 - 2 * N, 1.0 - N]).to(dtype))


def scheduled():
    """The rate of a step is the module's at the time of the backward pass."""
    for updater in ("sgd", "adagrad"):
        shared = Embedding(ROWS, DIM, updater=updater, lr=1.0, init=0, consistency="bsp:mean")
        shared(torch.tensor([1])).sum().backward()
        shared.lr = 0.25
        shared(torch.tensor([2])).sum().backward()
        equal(shared.weight[1:3, 0], torch.tensor([-1.0, -0.25]))
        for wrong in (-1.0, float("nan"), *([0.0] if updater == "adagrad" else [])):
            fails(partial(setattr, shared, "lr", wrong), "Embedding.lr", "above 0", "requires_grad_")
        assert shared.lr == 0.25
    shared = Embedding(ROWS, DIM, updater="ftrl", alpha=0.5, init=0, consistency="bsp:mean")
    fails(lambda: setattr(shared, "lr", 0.1), "ftrl", "alpha")
    fails(lambda: Embedding(ROWS, DIM, updater="ftrl", lr=0.1), "ftrl", "alpha")
    still = Embedding(ROWS, DIM, updater="momentum", lr=0.0, init=1, consistency="bsp:mean")
    still(torch.tensor([1])).sum().backward()
    equal(still.weight[1], torch.ones(DIM))


def rejected():
    fails(lambda: Embedding(ROWS, DIM, max_norm=1.0), "max_norm", "normalise")
    fails(lambda: Embedding(ROWS, DIM, updater="add"), "descends", "adagrad")
    fails(lambda: Embedding(ROWS, DIM, updater="sgd"), "lr for the updater", "lr=0.1")
    fails(lambda: Embedding(ROWS, DIM, padding_idx=ROWS), "padding_idx from -30 to 29")
    fails(lambda: EmbeddingBag(ROWS, DIM, mode="min"), "sum, mean or max")
    fails(lambda: Embedding(ROWS, DIM, momentum=0.5), "momentum")
    shared = Embedding(ROWS, DIM)
    bag = EmbeddingBag(ROWS, DIM)
    fails(lambda: shared(torch.tensor([1.0])), "integers", "float32")
    fails(lambda: shared([1]), "tensor")
    fails(lambda: shared(torch.tensor([ROWS])), "row ids from 0 to 29", "30 at position 0")
    fails(lambda: shared(torch.tensor([2**64 - 1], dtype=torch.uint64)), "larger ones")
    for wrong in (lambda: bag(torch.tensor([1])), lambda: bag(torch.tensor([[1]]), torch.tensor([0]))):
        try:
            wrong()
        except ValueError as error:
            assert "offsets" in str(error)
        else:
            raise AssertionError("expected PyTorch's own error")
    fails(lambda: copy.deepcopy(shared), "all workers share")
    fails(lambda: pickle.dumps(shared), "all workers share")
    assert "30, 5, updater=adagrad" in repr(shared) and "mode='mean'" in repr(bag)
    uni.barrier()


for part in sys.argv[1:]:
    globals()[part]()
    uni.barrier()
    print(f"{part}: done", flush=True)
uni.shutdown()
