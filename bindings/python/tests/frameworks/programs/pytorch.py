"""PyTorch on several ranks, against one process that has all data."""

import copy
import io
import pickle
import sys

import torch
from torch import nn
from torch.nn import functional

import unisono as uni
from torch_common import N, batches, equal, fails, losses, network, on_all_ranks, share, world
from torch_kinds import changed, checkpoints, kinds  # noqa: F401
from unisono.torch import (
    DistributedDataParallel,
    DistributedSampler,
    average_gradients,
    broadcast_parameters,
    parameters_of,
)


def curves():
    alone = losses(network(), lambda _: None, parts=False)
    assert alone[-1] < alone[0]

    model = network(seed=world.rank)
    broadcast_parameters(model)
    equal(losses(model, average_gradients, parts=True), alone)
    on_all_ranks(model)

    model = network(seed=world.rank)
    manager = uni.ParameterManager(model, mode="gradients")
    equal(losses(model, lambda _: manager.sync(), parts=True), alone)

    model = DistributedDataParallel(network(seed=world.rank))
    equal(losses(model, lambda _: None, parts=True), alone)
    on_all_ranks(model)

    # In the background, the model's changes made meanwhile are kept.
    model = torch.nn.Linear(300, 5)
    with uni.ParameterManager(model, background=True, consistency="bsp") as manager_in_background:
        first = model.weight.detach().clone()
        for _ in range(4):
            model.weight.data += 1
            manager_in_background.sync()
    equal(model.weight.detach(), first + 4 * N)

    # Plain gradient descent is linear: at a rate N times smaller, the sum of changes is their average.
    model = network(seed=world.rank)
    plain = network()
    manager = uni.ParameterManager(model, consistency="bsp")
    for batch in batches():
        for each, data, rate in ((plain, batch, 0.1), (model, share(batch), 0.1 / N)):
            each.zero_grad()
            functional.cross_entropy(each(data[0]), data[1]).backward()
            with torch.no_grad():
                for parameter in each.parameters():
                    parameter -= rate * parameter.grad
        manager.sync()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        equal(one, other)


def uneven():
    """Parts of different sizes, some of them empty: with weights, the mean is that over all rows."""

    def parts_of(batch, empty):
        rows = len(batch[1])
        parts = 1 if empty else N
        images, labels = (part.tensor_split(parts) for part in batch)
        mine = world.rank if world.rank < parts else 0
        count = len(labels[mine]) if world.rank < parts else 0
        assert N == 1 or empty or rows % N, "the test needs uneven parts"
        return images[mine][:count], labels[mine][:count]

    def curve(model, weighted, empty):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        found = []
        for batch in batches(size=5 + 6 * N if N > 1 else 11):
            with torch.no_grad():
                found.append(functional.cross_entropy(model(batch[0]), batch[1]).item())
            images, labels = parts_of(batch, empty) if weighted else batch
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            if weighted:
                weighted(model, loss, len(labels))
            else:
                loss.backward()
            optimizer.step()
        return torch.tensor(found)

    def by_call(model, loss, rows):
        loss.backward()
        average_gradients(model, weight=rows)

    def by_wrapper(model, loss, rows):
        model.weigh(rows)
        loss.backward()

    alone = curve(network(), None, False)
    for empty in (False, True):
        model = network()
        equal(curve(model, by_call, empty), alone)
        on_all_ranks(model)
        equal(curve(DistributedDataParallel(network()), by_wrapper, empty), alone)
        model = network()
        manager = uni.ParameterManager(model, mode="gradients")

        def by_manager(_, loss, rows, manager=manager):
            loss.backward()
            manager.sync(weight=rows)

        equal(curve(model, by_manager, empty), alone)

    # A weight counts for one pass; the next one without is a plain average.
    wrapped = DistributedDataParallel(nn.Linear(1, 1))
    for weight in (3.0 * (world.rank == 0), None):
        wrapped.zero_grad()
        if weight is not None:
            wrapped.weigh(weight)
        wrapped(torch.full((1, 1), world.rank + 1.0)).sum().backward()
        expected = (N + 1) / 2 if weight is None else 1.0
        equal(wrapped.module.weight.grad, torch.full((1, 1), expected))

    # Averages of parameters; the weights of calls that do not exchange add up.
    for background in (False, True):
        values = torch.zeros(3)
        with uni.ParameterManager([values], mode="average", every=2, background=background) as manager:
            values += world.rank
            for _ in range(2):
                manager.sync(weight=world.rank + 0.5)
            manager.flush()
            weights = [rank + 0.5 for rank in range(N)]
            mean = sum(rank * weight for rank, weight in enumerate(weights)) / sum(weights)
            equal(values, torch.full((3,), mean))


def wrong_weights():
    """Wrong weights are an error on every worker, and change nothing."""
    last, model = f"rank {N - 1}", nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    held = model.weight.grad.clone()
    manager = uni.ParameterManager(model, mode="gradients")
    wrapped = DistributedDataParallel(nn.Linear(2, 1))
    for wrong in (-1, float("nan"), float("inf"), "many"):
        weight = wrong if world.rank == N - 1 else 1
        fails(lambda weight=weight: average_gradients(model, weight=weight), "from 0 up", last)
        fails(lambda weight=weight: wrapped.weigh(weight), "from 0 up", last)
        fails(lambda weight=weight: manager.sync(weight=weight), "from 0 up", last)
    fails(lambda: average_gradients(model, weight=0), "above 0", "on all")
    fails(lambda: average_gradients(model, weight=1, op="sum"), "'sum'")
    fails(lambda: uni.ParameterManager(model).sync(weight=1), "mode=")
    assert torch.equal(model.weight.grad, held)
    average_gradients(model, weight=1)
    equal(model.weight.grad, held)


def unused():
    """Parameters that only some workers, or none, have used."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.first, self.never = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x, branch):
            return self.first(self.always(x)) if branch else self.always(x)

    torch.manual_seed(0)
    for wrap in (False, True):
        model = Branches()
        wrapped = DistributedDataParallel(model) if wrap else model
        broadcast_parameters(model)
        for _ in range(3):
            model.zero_grad()
            wrapped(torch.ones(2, 3), branch=world.rank == 0).sum().backward()
            if not wrap:
                average_gradients(model)
            equal(model.first.bias.grad, torch.full((3,), 2.0 / N))
            if N > 1:
                assert model.never.weight.grad is None


def accumulation():
    """Passes inside no_sync are averaged with the next one outside."""
    model = network()
    alone = copy.deepcopy(model)
    wrapped = DistributedDataParallel(model)
    data = list(batches(3))
    for images, labels in data:
        functional.cross_entropy(alone(images), labels).backward()
    with wrapped.no_sync():
        for images, labels in map(share, data[:2]):
            functional.cross_entropy(wrapped(images), labels).backward()
    images, labels = share(data[2])
    functional.cross_entropy(wrapped(images), labels).backward()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        equal(one.grad, other.grad)
    # Gradients that are kept, and zeroed in place instead of set to None.
    for _ in range(2):
        wrapped.zero_grad(set_to_none=False)
        functional.cross_entropy(wrapped(images), labels).backward()
    on_all_ranks(model)


def states():
    """Keys as in PyTorch's own wrapper, and buffers of the first worker."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    assert all(key.startswith("module.") for key in model.state_dict())
    model.load_state_dict(model.state_dict())
    model.load_state_dict(model.module.state_dict())
    for step in range(2):
        model(torch.randn(8, 4, generator=torch.Generator().manual_seed(world.rank + step))).sum().backward()
    running = model.module[1].running_mean.clone()
    first = uni.broadcast(running.clone())
    assert N == 1 or world.rank == 0 or not torch.equal(running, first)
    model(torch.zeros(8, 4))  # begins with the first worker's buffers
    model.eval()
    equal(model.module[1].running_mean, 0.9 * first + 0.1 * model.module[0].bias.detach())
    broadcast_parameters(model)
    assert model.module[1].num_batches_tracked == 3


def copies():
    """A copy of a wrapper is a wrapper with its own parameters; pickling saves only the module."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))
    model(torch.ones(2, 2)).sum().backward()
    if world.rank == 0:
        copy.deepcopy(model)  # not a collective call
    copied = copy.deepcopy({"best": model})["best"]
    assert type(copied) is DistributedDataParallel
    with torch.no_grad():
        copied.module[0].weight += 1
    equal(copied.module[0].weight, model.module[0].weight + 1)
    for one in (model, copied):
        one.zero_grad()
        one.module[0](torch.full((1, 2), world.rank + 1.0)).sum().backward()
        equal(one.module[0].weight.grad, torch.full((1, 2), (N + 1) / 2))
    for call in (pickle.dumps, lambda wrapper: torch.save(wrapper, io.BytesIO())):
        fails(lambda call=call: call(model), f"rank {world.rank}", "save or copy model.module")
    torch.save(model.module, io.BytesIO())


def tied():
    """Parameters that share memory count once."""
    layers = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    layers[1].weight = layers[0].weight
    for background in (False, True):
        with torch.no_grad():
            layers[0].weight.zero_()
        manager = uni.ParameterManager(layers.state_dict(), background=background, consistency="bsp")
        assert manager.table.shape == (4,)
        for _ in range(4):
            with torch.no_grad():
                layers[0].weight += 1
            manager.sync()
        manager.flush()
        equal(layers[0].weight.detach(), torch.full((2, 2), 4.0 * N))
        manager.close()

    one = nn.Parameter(torch.zeros(100_000))
    one.grad = torch.ones_like(one)
    uni.ParameterManager([one, one], mode="gradients", op="sum").sync()
    equal(one.grad, torch.full_like(one, N))
    one.grad = torch.full_like(one, world.rank + 1.0)
    uni.ParameterManager([one, one], mode="gradients").sync(weight=N - world.rank)
    mean = sum((rank + 1) * (N - rank) for rank in range(N)) / sum(range(N + 1))
    equal(one.grad, torch.full_like(one, mean))

    # The same memory, with separate gradients.
    other = nn.Parameter(one.detach())
    manager = uni.ParameterManager([one, other], mode="gradients", op="sum")
    one.grad, other.grad = torch.ones_like(one), torch.full_like(one, 2.0)
    manager.sync()
    equal(one.grad, torch.full_like(one, N))
    equal(other.grad, torch.full_like(one, 2.0 * N))

    whole = torch.zeros(4, 6)
    columns = {"left": whole[:, :3], "right": whole[:, 3:]}
    assert uni.ParameterManager(columns, mode="average").sync()
    for dtype in (torch.float32, torch.bfloat16):
        parts = {"first": torch.zeros(4, dtype=dtype)}
        parts["second"] = parts["first"][2:]
        fails(
            lambda parts=parts: uni.ParameterManager(parts), "'first' and 'second'", "leave one of them out"
        )
    fails(lambda: uni.ParameterManager([whole, whole.t()]), "'0' and '1'")


def types():
    """All element types, non-contiguous gradients, and models in other memory."""
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.bfloat16, 0.02), (torch.float16, 0.01)):
        model = network(dtype=dtype)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, world.rank + 1.0)
        average_gradients(model)
        for parameter in model.parameters():
            equal(parameter.grad, torch.full_like(parameter, (N + 1) / 2), tolerance)
        wrapped = DistributedDataParallel(model)
        wrapped(torch.ones(2, 20, dtype=dtype)).sum().backward()
        on_all_ranks(model)
    convolution = nn.Conv2d(64, 64, 3).to(memory_format=torch.channels_last)
    convolution.weight.grad = torch.full_like(convolution.weight, world.rank + 1.0)
    assert not convolution.weight.grad.is_contiguous()
    average_gradients(convolution)
    equal(convolution.weight.grad, torch.full_like(convolution.weight, (N + 1) / 2))
    with uni.ParameterManager(convolution) as manager:
        convolution.weight.data += 1
        manager.sync()
        uni.barrier()
    for options in ({"consistency": "bsp"}, {"mode": "average"}):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
        manager = uni.ParameterManager(model, **options)
        loss = model(torch.ones(2, 3)).sum()
        manager.sync()
        try:
            loss.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error
        else:
            raise AssertionError("autograd has used weights that a sync has written")
    manager = uni.ParameterManager({"half": torch.zeros(3, dtype=torch.bfloat16), "full": torch.zeros(2)})
    assert manager.table.dtype == "float32"
    broadcast_parameters({"flags": torch.tensor([True, False]), "short": torch.ones(3, dtype=torch.int16)})


def rejected():
    """Errors name the parameter and the worker, on every worker."""

    last = f"rank {N - 1}"
    elsewhere = nn.Linear(3, 2, device="meta" if world.rank == N - 1 else "cpu")
    fails(lambda: uni.ParameterManager(elsewhere), "'weight'", last, "meta", ".cpu()")
    integers = [torch.zeros(2, dtype=torch.int64 if world.rank == N - 1 else torch.float32)]
    fails(lambda: uni.ParameterManager(integers), "'0'", last, "int64")
    sparse = nn.Embedding(5, 2, sparse=world.rank == N - 1)
    sparse(torch.tensor([1])).sum().backward()
    if N > 1:
        fails(lambda: average_gradients(sparse), "'weight'", last, "dense")
        other = nn.Linear(3 + (world.rank == N - 1), 2)
        for call in (uni.ParameterManager, broadcast_parameters, DistributedDataParallel):
            fails(lambda call=call: call(other), "'weight'", last, "(2, 4)", "(2, 3)")
    fails(lambda: DistributedDataParallel(nn.Flatten()), "no wrapper")
    assert parameters_of(nn.Linear(2, 1)).names() == ["weight", "bias"]


def unequal():
    """If workers sync unequally often, the error names each rank's call, and the models stay unchanged."""
    if N == 1:
        return
    for options in ({"consistency": "bsp"}, {"mode": "average"}, {"consistency": "bsp", "background": True}):
        model = network(seed=world.rank)
        manager = uni.ParameterManager(model, **options)
        for _ in range(2):
            manager.sync()
        if options.get("background"):
            manager.flush()  # no exchange is in progress
        with torch.no_grad():
            model[0].weight += 1
        held = copy.deepcopy(model.state_dict())
        call = manager.close if world.rank == N - 1 else manager.sync
        fails(call, f"rank {N - 1} in close", "rank 0 in sync", "equally often")
        for name, value in model.state_dict().items():
            assert torch.equal(value, held[name]), name


def late():
    """After shutdown nothing is synced, averaged or partly written."""
    model = network()
    managers = [uni.ParameterManager(model, mode=mode) for mode in ("delta", "average", "gradients")]
    model(torch.ones(2, 20)).sum().backward()
    held = copy.deepcopy(model.state_dict())
    uni.barrier()
    uni.shutdown()
    for manager in managers:
        fails(manager.sync, f"rank {world.rank}", "before shutdown()")
    fails(lambda: average_gradients(model), "shutdown()")
    for name, value in model.state_dict().items():
        assert torch.equal(value, held[name]), name


def sampler():
    """Every worker has its part, and together they have all samples."""
    mine = DistributedSampler(range(10 * N), seed=3)
    mine.set_epoch(1)
    gathered = uni.all_gather(torch.tensor(list(mine))).flatten()
    assert sorted(gathered.tolist()) == list(range(10 * N))


for name in sys.argv[1:]:
    globals()[name]()
    if name != "late":  # it ends the world
        uni.barrier()
