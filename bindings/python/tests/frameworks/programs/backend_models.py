"""DistributedDataParallel and fully sharded models over the backend `unisono`: as trained in one process."""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from backend_common import main, put

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


def joined(rank, size):
    """Ranks with batches of different numbers."""
    network = DistributedDataParallel(torch.nn.Linear(2, 1))
    with network.join():
        for _ in range(rank + 1):
            network(torch.ones(1, 2)).sum().backward()


def checkpoints(rank, size):
    import tempfile

    import torch.distributed.checkpoint as dcp

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    network = model()
    fully_shard(network)
    before = {name: value.full_tensor().clone() for name, value in network.state_dict().items()}
    dcp.save(network.state_dict(), checkpoint_id=folder[0])
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    state = network.state_dict()
    dcp.load(state, checkpoint_id=folder[0])
    network.load_state_dict(state)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value.full_tensor(), before[name])


if __name__ == "__main__":
    main()
