"""The arguments of PyTorch's DistributedDataParallel, uneven numbers of passes, and buffers in one call."""

import collections
import copy
import sys
import warnings
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import unisono as uni
from torch_common import N, equal, fails, network, on_all_ranks, world
from unisono.torch import DistributedDataParallel
from unisono.torch.broadcast import broadcast_tensors
from unisono.torch.ddp_arguments import move


def arguments():
    """A call as programs for PyTorch make it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DistributedDataParallel(
            network(seed=world.rank),
            None,
            None,
            0,
            False,
            True,
            None,
            0.001,
            find_unused_parameters=True,
            gradient_as_bucket_view=True,
            static_graph=True,
        )
        by_device = DistributedDataParallel(nn.Linear(2, 1), device_ids=["cpu"], output_device="cpu")
    on_all_ranks(model.module)
    sizes = [[one.numel() * 4 for one in bucket.parameters] for bucket in model._buckets]
    assert N == 1 or (len(sizes) > 3 and all(len(one) == 1 or sum(one) <= 1048 for one in sizes)), sizes
    images = torch.full((2, 20), world.rank + 1.0)
    model(images).sum().backward()
    equal(model.module[4].bias.grad, torch.full((5,), 2.0))
    assert model.device == by_device.device == torch.device("cpu")
    by_device(torch.ones(1, 2)).sum().backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DistributedDataParallel(nn.Linear(2, 1), gradient_as_bucket_view=False)
    assert [one for one in caught if "views of buckets" in str(one.message)], caught


def groups():
    """`process_group` is another name for `group`."""
    one = world.group([world.rank])
    model = DistributedDataParallel(nn.Linear(1, 1), process_group=one)
    model(torch.full((1, 1), world.rank + 1.0)).sum().backward()
    equal(model.module.weight.grad, torch.full((1, 1), world.rank + 1.0))
    fails(lambda: DistributedDataParallel(nn.Linear(1, 1), process_group=one, group=one), "received both")
    fails(lambda: DistributedDataParallel(nn.Linear(1, 1), process_group="gloo"), "unisono.Group", "str")


def devices():
    linear = nn.Linear(1, 1)
    fails(lambda: DistributedDataParallel(linear, device_ids=["cpu", "meta"]), "one device", "-n 2")
    fails(lambda: DistributedDataParallel(linear, device_ids=["cpu"], output_device="meta"), "one device")
    for device in ("cpu", 0):
        fails(lambda device=device: DistributedDataParallel(linear, output_device=device), "device_ids=")
    fails(lambda: DistributedDataParallel(linear, device_ids=["meta"]), "'weight'", "on meta", "on cpu")
    fails(lambda: DistributedDataParallel(linear, bucket_cap_mb=0), "above 0")


def unsynced():
    """Without `init_sync`, models stay as they are."""
    torch.manual_seed(world.rank)
    linear = nn.Linear(3, 1)
    held = linear.weight.detach().clone()
    DistributedDataParallel(linear, init_sync=False)
    equal(linear.weight, held)


def passes():
    """Worker r makes r passes: the mean is over all workers, or over those that still have input."""
    for divides_by_all in (True, False):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1)))
        means = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with model.join(divide_by_initial_world_size=divides_by_all):
            for _ in range(world.rank):
                optimizer.zero_grad()
                model.module[0](torch.ones(1, 1)).sum().item()  # a pass of the module alone is not averaged
                (model(torch.tensor([[1.0], [3.0]])).sum() * 0 + model.module[0].weight.sum()).backward()
                means.append(model.module[0].weight.grad.item())
                optimizer.step()
                model.module[1].running_mean += 100 * world.rank
        active = [N - 1 - step for step in range(world.rank)]
        equal(torch.tensor(means), torch.tensor([one / N if divides_by_all else 1.0 for one in active]))
        on_all_ranks(model.module)
        # The last passes are those of the last worker.
        if N > 1:
            assert model.module[1].num_batches_tracked == N - 1
        model(torch.ones(2, 1)).sum().backward()  # all of them go on together


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x, second):
        return self.first(x) + (self.second(x) if second else 0)


def after_join():
    """What a worker without input received is no gradient of its own."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Branches())
    for _ in range(2):
        with model.join():
            for _ in range(1 + world.rank):
                model.zero_grad()
                model(torch.ones(2, 1), True).sum().backward()
        model.zero_grad()
        model(torch.ones(2, 1), False).sum().backward()
        equal(model.module.first.bias.grad, torch.full((1,), 2.0))
        if N > 1:
            assert model.module.second.weight.grad is None and model.module.second.bias.grad is None


class Stateful(nn.Module):
    """A module with extra state, and a buffer that state_dict does not have."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(1, 1), nn.BatchNorm1d(1)
        self.register_buffer("seen", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.norm(self.linear(x))

    def get_extra_state(self):
        return {"rank": world.rank}

    def set_extra_state(self, state):
        pass


def join_states():
    """All parameters and buffers are those of the last worker."""
    model = DistributedDataParallel(Stateful())
    with model.join():
        for _ in range(1 + world.rank):
            model(torch.ones(2, 1)).sum().backward()
    assert model.module.seen == N
    assert model.module.norm.num_batches_tracked == N


def join_without_gradients():
    """Passes without gradients, in training mode, are a worker's own."""
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)))
    with model.join():
        for _ in range(1 + 2 * world.rank):
            with torch.no_grad():
                model(torch.ones(2, 1))
            model(torch.ones(2, 1)).sum().backward()
        with torch.no_grad():
            model(torch.ones(2, 1))
    on_all_ranks(model.module)


def join_and_accumulation():
    """no_sync within join: its passes need no calls of the others."""
    model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
    means = []
    with model.join(divide_by_initial_world_size=False):
        for _ in range(world.rank):
            model.zero_grad()
            with model.no_sync():
                for _ in range(world.rank):  # not equally many
                    model(torch.ones(1, 1)).sum().backward()
            model(torch.ones(1, 1)).sum().backward()
            means.append(model.module.weight.grad.item())
    for step, mean in enumerate(means):
        active = [rank for rank in range(N) if rank > step]
        assert abs(mean - sum(1 + rank for rank in active) / len(active)) < 1e-5, (step, mean)


def early():
    model = DistributedDataParallel(nn.Linear(1, 1))

    def train():
        with model.join(throw_on_early_termination=True):
            for _ in range(1 + (world.rank == N - 1)):
                model(torch.ones(1, 1)).sum().backward()

    if N == 1:
        train()
    else:
        fails(train, "join", "received none from rank 0", "as many batches")
    with model.join(enable=False):
        model(torch.ones(1, 1)).sum().backward()


def unsuited():
    model = DistributedDataParallel(nn.Linear(1, 1))
    with model.join():
        fails(lambda: model.weigh(1.0), "weigh", "join")
    try:
        with model.join():
            raise KeyError("mine")
    except KeyError:
        pass
    assert copy.deepcopy(model)._uneven is None


def moves():
    """Inputs that are moved; "meta" is a second device on every machine."""

    class Pair(NamedTuple):
        left: torch.Tensor
        right: object

    x, meta, cpu = torch.ones(2), torch.device("meta"), torch.device("cpu")

    class Batch(dict):
        def __init__(self, *arguments, note=None):
            super().__init__(*arguments)
            self.note = note

    batch = Batch({"x": x, "name": "a"}, note="kept")
    counted = collections.defaultdict(list, {"x": [x]})
    values = [batch, counted, Pair(x, 1), (x,), [[x], {"y": (x, None)}], collections.OrderedDict(a=x)]
    for value in values:
        assert move(value, cpu) is value, "nothing to move"
        moved = move(value, meta)
        assert type(moved) is type(value) and moved is not value
    moved = move(batch, meta)
    assert moved["x"].is_meta and moved["name"] == "a" and moved.note == "kept"
    assert not batch["x"].is_meta, "the caller's own is as it was"
    assert move(counted, meta)["x"][0].is_meta and move(counted, meta)["absent"] == []
    assert "absent" not in counted
    assert move(Pair(x, 1), meta).left.is_meta and move([[x], {"y": (x, None)}], meta)[1]["y"][0].is_meta
    for value in (torch.Size([2, 3]), "text", None, 3, {1, 2}, (), [], {}):
        assert move(value, meta) is value
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    assert move(packed, cpu) is packed
    assert move({"p": packed}, meta)["p"].data.is_meta
    # Gradients reach the caller's tensor.
    leaf = torch.ones(2, requires_grad=True)
    model = DistributedDataParallel(nn.Linear(2, 1), device_ids=["cpu"])
    model(leaf).sum().backward()
    assert leaf.grad is not None


def buffers():
    """Small tensors of all types share one call, whatever their strides; large ones have their own."""
    kinds = [torch.bool, torch.uint8, torch.int16, torch.float64, torch.bfloat16, torch.complex64]
    tensors = [(torch.arange(n) % 2 + world.rank).to(kind) for kind in kinds for n in (1, 3, 0)]
    tensors.append(torch.tensor(world.rank))
    tensors.append(torch.full((5, 4), float(world.rank)).t())
    tensors.append(torch.full((20_000,), world.rank + 0.5))
    tensors.append(torch.full((3,), 1j * world.rank).conj())
    counted = []
    native = world._native

    class Counting:
        def __getattr__(self, name):
            counted.append(name)
            return getattr(native, name)

    world._native = Counting()
    try:
        root = N - 1
        broadcast_tensors(tensors, root, world)
    finally:
        world._native = native
    assert counted == ["broadcast"] * 2, counted
    for place, kind in enumerate(kinds):
        equal(
            tensors[3 * place + 1].to(torch.complex128),
            ((torch.arange(3) % 2 + root).to(kind)).to(torch.complex128),
        )
    assert tensors[-4] == root and (tensors[-3] == root).all() and (tensors[-2] == root + 0.5).all()
    equal(tensors[-1], torch.full((3,), 1j * root).conj())


for name in sys.argv[1:]:
    globals()[name]()
    uni.barrier()
