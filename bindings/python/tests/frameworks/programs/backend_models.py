"""DistributedDataParallel and fully sharded models over the backend `unisono`: as trained in one process."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from backend_common import main, put
from torch_names import fully_shard
from unisono.torch.distributed.work import NATIVE

STEPS, BATCH = 4, 12


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(6, 33), torch.nn.Tanh(), torch.nn.Linear(33, 2))


def batches():
    options = {"generator": torch.Generator("cpu").manual_seed(2), "device": "cpu"}
    for _ in range(STEPS):
        yield put(torch.randn(BATCH, 6, **options)), put(torch.randn(BATCH, 2, **options))


def train(network, part):
    """Trains on this rank's part of every batch; losses are means."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(network(part(x)), part(y)).backward()
        optimizer.step()


def expected():
    network = model()
    train(network, lambda x: x)
    return network.state_dict()


def close(made):
    for name, value in expected().items():
        torch.testing.assert_close(made[name], value, rtol=1e-5, atol=1e-6)


def replicated(rank, size):
    for options in ({}, {"bucket_cap_mb": 0.0005}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        network = DistributedDataParallel(model(), **options)
        train(network, lambda x: x.chunk(size)[rank])
        close(network.module.state_dict())
    # A hook of PyTorch's own, which continues the futures of the backend.
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook

    for hook in (allreduce_hook, bf16_compress_hook):
        network = DistributedDataParallel(model())
        network.register_comm_hook(None, hook)
        train(network, lambda x: x.chunk(size)[rank])
        if hook is allreduce_hook:
            close(network.module.state_dict())


def sharded(rank, size):
    network = model()
    for layer in network:
        fully_shard(layer)
    fully_shard(network)
    train(network, lambda x: x.chunk(size)[rank])
    close({name: value.full_tensor() for name, value in network.state_dict().items()})


def sharded_in_shared_memory(rank, size):
    """FSDP2 gathers and reduces in memory of the process group."""
    network = model()
    for layer in [*network, network]:
        fully_shard(layer)
        layer.set_allocate_memory_from_process_group_for_comm(True)
    train(network, lambda x: x.chunk(size)[rank])
    close({name: value.full_tensor() for name, value in network.state_dict().items()})
    group = dist.new_group()
    for backend in [one._get_backend(torch.device("cpu")) for one in (dist.group.WORLD, group)]:
        assert backend.supports_tensor_alloc(torch.device("cpu"))
        assert not backend.supports_tensor_alloc(torch.device("meta"))
        for dtype in (torch.bfloat16, torch.complex64, torch.bool):
            x = backend.allocate_tensor(50_000, dtype=dtype, device=torch.device("cpu"))
            assert (x.shape, x.dtype) == ((50_000,), dtype)
            dist.all_reduce(x.fill_(1), dist.ReduceOp.SUM, group=group)
            assert x.eq(size if dtype is not torch.bool else 1).all()


def buckets(rank, size):
    """DistributedDataParallel's buckets are in shared memory if the C++ part is there."""
    network = DistributedDataParallel(model(), gradient_as_bucket_view=True)
    train(network, lambda x: x.chunk(size)[rank])
    close(network.module.state_dict())
    shared = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split()
        if permissions.endswith("s"):
            begin, end = (int(address, 16) for address in addresses.split("-"))
            shared.append(range(begin, end))
    for parameter in network.parameters():
        is_shared = any(parameter.grad.data_ptr() in addresses for addresses in shared)
        assert is_shared == (NATIVE is not None and torch.cuda.device_count() == 0), parameter.shape


def joined(rank, size):
    """Ranks with batches of different numbers."""
    network = DistributedDataParallel(torch.nn.Linear(2, 1))
    with network.join():
        for _ in range(rank + 1):
            network(torch.ones(1, 2)).sum().backward()


def hooks(rank, size):
    """PyTorch's hooks that compress gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, tolerance in (
        (default_hooks.fp16_compress_hook, 1e-2),
        (default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 1e-2),
        (powerSGD_hook.powerSGD_hook, None),
    ):
        network = DistributedDataParallel(model())
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2) if tolerance is None else None
        network.register_comm_hook(state, hook)
        train(network, lambda x: x.chunk(size)[rank])
        made = torch.cat([value.flatten() for value in network.module.state_dict().values()])
        if tolerance is not None:
            wanted = torch.cat([value.flatten() for value in expected().values()])
            torch.testing.assert_close(made, wanted, rtol=tolerance, atol=tolerance)
        first = made.clone()
        dist.broadcast(first, 0)
        assert torch.equal(made, first)  # approximate, but the same on every rank


def optimizers(rank, size):
    """The state of the optimizer is divided between ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    for overlap in (False, True):
        network, alone = DistributedDataParallel(model(), gradient_as_bucket_view=overlap), model()
        optimizer = ZeroRedundancyOptimizer(
            network.parameters(), torch.optim.Adam, parameters_as_bucket_view=overlap, lr=0.01
        )
        reference = torch.optim.Adam(alone.parameters(), lr=0.01)
        for x, y in batches():
            for one, trained, part in (
                (optimizer, network, lambda x: x.chunk(size)[rank]),
                (reference, alone, torch.clone),
            ):
                one.zero_grad()
                torch.nn.functional.mse_loss(trained(part(x)), part(y)).backward()
                one.step()
        for made, wanted in zip(network.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            assert len(optimizer.state_dict()["state"]) == len(list(alone.parameters()))
        with network.join() if size == 1 else torch.distributed.algorithms.Join([network, optimizer]):
            for _ in range(rank + 1):
                optimizer.zero_grad()
                network(torch.ones(1, 6)).sum().backward()
                optimizer.step()


class Branches(torch.nn.Module):
    """Uses one of its layers: which one depends on the step and the rank."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 2) for _ in range(2))

    def forward(self, x, index):
        return self.layers[index](x)


def unused(rank, size):
    """Parameters without a gradient, and gradients that are added up over several steps."""
    torch.manual_seed(3)
    network = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for step in range(4):
        network.zero_grad()
        network(torch.ones(3, 6), (step + rank) % 2).sum().backward()
        users = sum((step + other) % 2 == 0 for other in range(size))
        if users:
            wanted = torch.full((2, 6), 3.0 * users / size)
            torch.testing.assert_close(network.module.layers[0].weight.grad, wanted)
    network = DistributedDataParallel(model())
    x = torch.full((2, 6), rank + 1.0)
    with network.no_sync():
        network(x).sum().backward()
    network(x).sum().backward()
    alone = model()
    sum(2 * alone(torch.full((2, 6), other + 1.0)).sum() / size for other in range(size)).backward()
    for made, wanted in zip(network.module.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(made.grad, wanted.grad, rtol=1e-4, atol=1e-5)


def checkpoints(rank, size):
    """Saved in the folder CHECKPOINTS, also in the background, and loaded on any number of ranks."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    folder = Path(os.environ["CHECKPOINTS"])
    network = model()
    fully_shard(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    for _ in range(2):
        network(torch.ones(2, 6)).sum().backward()
        optimizer.step()

    def state():
        weights, moments = get_state_dict(network, optimizer)
        return {"weights": weights, "moments": moments}

    wanted = {name: value.full_tensor().clone() for name, value in state()["weights"].items()}
    dcp.save(state(), checkpoint_id=folder / f"{size} at once")
    # In the background, ranks exchange what each of them writes: over a group of its own.
    group = dist.new_group(list(range(size)))
    saved = dcp.async_save(state(), checkpoint_id=folder / f"{size} later", process_group=group)
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    saved.result(60)
    dist.barrier()
    dist.destroy_process_group(group)
    for path in sorted(folder.iterdir()):
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)
        loaded = state()
        dcp.load(loaded, checkpoint_id=path)
        set_state_dict(
            network, optimizer, model_state_dict=loaded["weights"], optim_state_dict=loaded["moments"]
        )
        for name, value in network.state_dict().items():
            torch.testing.assert_close(value.full_tensor(), wanted[name])


if __name__ == "__main__":
    main()
