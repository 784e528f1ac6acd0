"""A background manager whose model takes over memory before an optimizer step."""

import copy
import gc
import random
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks as hooks

import unisono as uni

world = uni.init()
torch.set_num_threads(1)
N = world.size


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 3))


def ended(manager):
    """Waits until the exchange in progress has ended."""
    deadline = time.monotonic() + 60
    while not manager._replica._waiting.ended:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def hold(manager, parameters, before):
    """Runs `before` once the exchange has ended, and returns which parameters were swapped."""
    if manager._replica.busy and manager._replica._swap is not None:
        ended(manager)
    places = [one.data_ptr() for one in parameters]
    before()
    return [one.data_ptr() != place for one, place in zip(parameters, places, strict=True)]


def exchange_all(manager):
    """Exchanges until all workers have all changes."""
    for _ in range(2):
        manager.flush()
        uni.barrier()


def equal(one, other, tolerance=1e-5):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def loss(model, worker, step):
    source = torch.Generator().manual_seed(100 * worker + step)
    return model(torch.randn(5, 7, generator=source)).square().sum()


OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, foreach=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=False),
}


def simulate(make, steps):
    """The final values of all workers, computed by one."""
    models = [network() for _ in range(N)]
    optimizers = [make(model.parameters()) for model in models]
    shared = nn.utils.parameters_to_vector(models[0].parameters()).detach()
    bases, corrections = [shared] * N, [torch.zeros_like(shared)] * N
    for step in range(steps):
        changes = []
        for worker, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss(model, worker, step).backward()
            optimizer.step()
            held = nn.utils.parameters_to_vector(model.parameters()).detach() + corrections[worker]
            nn.utils.vector_to_parameters(held, model.parameters())
            changes.append((held, held - bases[worker]))
        shared = shared + sum(change for _, change in changes)
        bases = [shared] * N
        corrections = [shared - held for held, _ in changes]
    return shared


def naive():
    """Whether the exchange ends before the step or after it, the result is that of one process."""
    for kind, make in OPTIMIZERS.items():
        for pace in ("fast", "slow", "mixed"):
            model = network()
            parameters = list(model.parameters())
            manager = uni.ParameterManager(model, background=True, consistency="bsp")
            optimizer = make(parameters)
            chance, swaps, get = random.Random(world.rank), 0, manager.table.get

            def late(*arguments, get=get, **options):
                time.sleep(0.02)
                return get(*arguments, **options)

            for step in range(25):
                manager.table.get = late if pace == "slow" else get
                optimizer.zero_grad()
                loss(model, world.rank, step).backward()
                if pace == "fast" or (pace == "mixed" and chance.random() < 0.5):
                    swaps += sum(hold(manager, parameters, optimizer.step))
                else:
                    optimizer.step()
                manager.sync()
            manager.table.get = get
            assert pace != "fast" or swaps == 24 * len(parameters), (kind, swaps)
            manager.flush()
            equal(nn.utils.parameters_to_vector(parameters).detach(), simulate(make, 25))
            manager.close()


def train(model, manager, steps, between=lambda: None):
    """Steps that change every element by one; returns how often parameters were swapped."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD([one for one in parameters if one.requires_grad], lr=1.0)
    swaps = 0
    for _ in range(steps):
        for one in parameters:
            one.grad = -torch.ones_like(one)
        between()
        swaps += sum(hold(manager, parameters, optimizer.step))
        manager.sync()
    return swaps


def values(model):
    return [one.detach().clone() for one in model.parameters()]


def adds_up(model, first, change):
    for one, before in zip(model.parameters(), first, strict=True):
        equal(one.detach(), before + change, 1e-2 if one.dtype in (torch.float16, torch.bfloat16) else 1e-4)


def settings():
    """Every consistency, rare exchanges, averages, types and a model in rows: changes add up."""
    for options in (
        {},
        {"consistency": "ssp:1"},
        {"consistency": "bsp"},
        {"every": 3},
        {"mode": "average"},
    ):
        model = network()
        manager = uni.ParameterManager(model, background=True, **options)
        first = values(model)
        swaps = train(model, manager, 7)
        assert (swaps > 0) == ("mode" not in options), (options, swaps)
        if options.get("every") == 3:
            assert swaps == 2 * len(first)
        exchange_all(manager)
        adds_up(model, first, 7 if "mode" in options else 7 * N)
        manager.close()
    large = nn.Linear(1024, 1100)
    mixed = nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 2).half(), nn.Linear(2, 2).bfloat16()])
    channels = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
    for model, swapping in (
        (large, True),
        (mixed, False),
        (channels, True),
        (nn.Linear(2, 3).double(), True),
    ):
        manager = uni.ParameterManager(model, background=True)
        first, strides = values(model), [one.stride() for one in model.parameters()]
        assert (train(model, manager, 4) > 0) == swapping
        exchange_all(manager)
        adds_up(model, first, 4 * N)
        assert [one.stride() for one in model.parameters()] == strides
        manager.close()


def changes():
    """Changes to the model between a sync and a step are kept, tracked by PyTorch or not."""

    def in_place(model):
        with torch.no_grad():
            for one in model.parameters():
                one += 1

    def data(model):
        for one in model.parameters():
            one.data += 1

    def loaded(model):
        model.load_state_dict({name: one + 1 for name, one in model.state_dict().items()})

    def replaced(model):
        for one in model.parameters():
            one.data = one.data + 1

    def arrays(model):
        for one in model.parameters():
            one.detach().numpy()[...] += 1

    for change, swapping in (
        (in_place, False),
        (data, True),
        (loaded, False),
        (replaced, False),
        (arrays, True),
    ):
        for end in ("flush", "close"):
            model = network()
            manager = uni.ParameterManager(model, background=True, consistency="bsp")
            first = values(model)
            swaps = train(model, manager, 5, lambda change=change, model=model: change(model))
            assert (swaps > 0) == swapping, (change, swaps)
            if end == "flush":
                manager.flush()
                adds_up(model, first, 10 * N)
            manager.close()
            adds_up(model, first, 10 * N)

    # An untracked change just before the manager is closed stays in the model.
    model = network()
    manager = uni.ParameterManager(model, background=True, consistency="bsp")
    first = values(model)
    train(model, manager, 2)
    ended(manager)
    data(model)
    assert all(hold(manager, list(model.parameters()), torch.optim.SGD(model.parameters(), lr=1.0).step))
    manager.close()
    adds_up(model, first, 2 * N + 2)  # the optimizer has added one more, which was not sent


def failures():
    """After a failed exchange nothing is lost, not even untracked changes."""
    for failing in ("add", "get"):
        model = network()
        manager = uni.ParameterManager(model, background=True)
        first = values(model)

        def unseen(model=model):
            for one in model.parameters():
                one.data += 1

        assert train(model, manager, 3, unseen) > 0
        ended(manager)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        unseen()
        optimizer.step()  # the swapped-out memory has changes that were not sent
        kept = getattr(manager.table, failing)
        setattr(manager.table, failing, lambda *_, **__: 1 / 0)
        manager.sync()
        manager._replica._waiting._thread.join()
        optimizer.step()  # swaps nothing
        try:
            manager.sync()
        except ZeroDivisionError:
            pass
        else:
            raise AssertionError("expected the failure")
        setattr(manager.table, failing, kept)
        train(model, manager, 1, unseen)
        exchange_all(manager)
        adds_up(model, first, N * (3 * 2 + 2 + 1 + 2))
        manager.close()


def models():
    """Parts of a model, shared weights, memory with other references, copies and hooks."""
    model = network()
    parameters = list(model.parameters())
    manager = uni.ParameterManager(model, background=True)
    first, seen = values(model), []
    parameters[0].register_post_accumulate_grad_hook(lambda one: seen.append(one.grad.clone()))
    body = torch.optim.SGD(parameters[:2], lr=1.0, momentum=0.5)
    head = torch.optim.Adam(parameters[2:], lr=1e-3)
    other = torch.optim.SGD(network().parameters(), lr=1.0)
    for step in range(4):
        loss(model, world.rank, step).backward()
        assert len(seen) == step + 1 and seen[-1] is not parameters[0].grad
        assert not any(hold(manager, parameters, other.step))
        assert hold(manager, parameters, body.step) == [step > 0] * 2 + [False] * 2
        assert hold(manager, parameters, head.step) == [False] * 2 + [step > 0] * 2
        assert body.state[parameters[0]]["momentum_buffer"].shape == parameters[0].shape
        manager.sync()
    copied = copy.deepcopy(model)
    ended(manager)
    kept = values(copied)
    body.step()
    assert all(torch.equal(one, before) for one, before in zip(copied.parameters(), kept, strict=True))
    # A graph that saved the former values still has them, or fails, as after any change in place.
    manager.sync()
    factor = torch.ones(3, requires_grad=True)
    remembers = loss(model, 0, 0)
    cannot = (parameters[3] * factor).sum()
    model.zero_grad()
    assert hold(manager, parameters, head.step) == [False, False, False, True]
    remembers.backward()
    try:
        cannot.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    else:
        raise AssertionError("expected an error of autograd")
    exchange_all(manager)
    for one in model.parameters():
        assert all(torch.equal(one, each) for each in uni.all_gather(one.detach()))
    manager.close()

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(4, 4), nn.Linear(4, 4)
            self.decode.weight = self.encode.weight

    whole = torch.zeros(6)
    parts = nn.ParameterList([nn.Parameter(whole[:3]), nn.Parameter(whole[3:])])
    array = np.zeros(3, dtype="float32")
    foreign = nn.ParameterList([nn.Parameter(torch.from_numpy(array))])
    shared = nn.Linear(2, 2).share_memory()
    held = nn.Linear(2, 2)
    state = held.state_dict()
    frozen = nn.Linear(2, 2)
    frozen.bias.requires_grad = False
    for model, swaps in ((Tied(), 9), (parts, 0), (foreign, 0), (shared, 0), (held, 0), (frozen, 3)):
        manager = uni.ParameterManager(model, background=True)
        first = values(model)
        assert train(model, manager, 4) == swaps, (model, swaps)
        exchange_all(manager)
        for one, before in zip(model.parameters(), first, strict=True):
            equal(one.detach(), before + 4 * N * one.requires_grad, 1e-4)
        manager.close()
    assert (array == 4 * N).all() and (whole == 4 * N).all()
    assert torch.equal(state["weight"], held.weight)


def ends():
    """A manager removes its hook, however it ends."""
    assert not hooks
    model = network()
    first = values(model)
    manager = uni.ParameterManager(model, background=True, consistency="bsp")
    train(model, manager, 3)
    assert len(hooks) == 1
    manager.close()  # in the middle of an exchange
    adds_up(model, first, 3 * N)
    assert not hooks
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    try:
        with uni.ParameterManager(model, background=True) as manager:
            train(model, manager, 2)
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert not hooks
    manager = uni.ParameterManager(model, background=True)
    train(model, manager, 2)
    ended(manager)
    del manager
    gc.collect()
    assert not hooks
    uni.ParameterManager(model).close()
    assert not hooks


for name in sys.argv[1:]:
    globals()[name]()
    uni.barrier()
