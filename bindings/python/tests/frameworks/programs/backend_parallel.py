"""DTensors, tensor, pipeline and hybrid sharded parallelism over the backend `unisono`: as in one process."""

import copy
import itertools

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from backend_common import main, same
from torch_names import (
    DTensor,
    MixedPrecisionPolicy,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    fully_shard,
)
from unisono.torch.distributed.versions import OLDEST_WITH_BACKENDS, version

WIDTH = 8


class Block(torch.nn.Module):
    """A part of a transformer; its activations may be computed again in backward."""

    def __init__(self, again=False):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.again = again

    def forward(self, x):
        if self.again:
            return checkpoint(self.compute, x, use_reentrant=False)
        return self.compute(x)

    def compute(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def model(blocks=2, again=False):
    torch.manual_seed(1)
    return torch.nn.Sequential(*(Block(again) for _ in range(blocks)))


def batch(rows=24):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, 4, WIDTH, generator=generator), torch.randn(rows, 4, WIDTH, generator=generator)


def gradients(network):
    return {name: full(parameter.grad) for name, parameter in network.named_parameters()}


def full(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def expected(blocks=2):
    """The gradients of one process."""
    network, (x, y) = model(blocks), batch()
    F.mse_loss(network(x), y).backward()
    return gradients(network)


def close(made, wanted, **tolerance):
    for name, value in wanted.items():
        torch.testing.assert_close(made[name], value, **(tolerance or {"rtol": 1e-4, "atol": 1e-6}))


def dtensors(rank, size):
    """All placements, of sizes that ranks cannot share equally."""
    mesh = init_device_mesh("cpu", (size,))
    for shape in ((size * 2, 3), (5, 2 * size + 1), (1, 1), (0, 3)):
        whole = torch.randn(shape, generator=torch.Generator().manual_seed(3))
        for before, after in itertools.product([Shard(0), Shard(1), Replicate()], repeat=2):
            x = distribute_tensor(whole, mesh, [before])
            same(x.redistribute(mesh, [after]).full_tensor(), whole)
        for op, factor in (("sum", size), ("avg", 1), ("max", 1)):
            for after in (Shard(0), Shard(1), Replicate()):
                part = DTensor.from_local(whole, mesh, [Partial(op)])
                torch.testing.assert_close(part.redistribute(mesh, [after]).full_tensor(), whole * factor)
    x = distribute_tensor(torch.arange(6.0 * size).view(-1, 3), mesh, [Shard(0)])
    same((x @ x.T).sum().full_tensor(), (x.full_tensor() @ x.full_tensor().T).sum())


def tensor_parallel(rank, size):
    """Weights in columns and rows, normalization of parts of the sequence."""
    mesh, (x, y) = init_device_mesh("cpu", (size,)), batch()
    network = model()
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1))}
    plan["down"] = RowwiseParallel(output_layouts=Shard(1))
    for block in network:
        parallelize_module(block, mesh, plan)
    out = DTensor.from_local(x.chunk(size, 1)[rank].contiguous(), mesh, [Shard(1)])
    for block in network:
        out = out + DTensor.from_local(block.down(F.gelu(block.up(block.norm(out)))), mesh, [Shard(1)])
    F.mse_loss(out.full_tensor(), y).backward()
    close(gradients(network), expected())


def sharded_options(rank, size):
    """fully_shard with mixed precision, activation checkpointing, and norms of gradients."""
    x, y = (part.chunk(size)[rank] for part in batch())
    for keep, again in ((True, True), (False, False)):
        network = model(again=again)
        for block in network:
            fully_shard(block, reshard_after_forward=keep)
        fully_shard(network)
        for _ in range(2):
            network.zero_grad()
            F.mse_loss(network(x), y).backward()
        close(gradients(network), expected())
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), 0.01).full_tensor()
        wanted = torch.linalg.vector_norm(torch.cat([value.flatten() for value in expected().values()]))
        torch.testing.assert_close(norm, wanted, rtol=1e-4, atol=1e-6)
    network = model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (*network, network):
        fully_shard(layer, mp_policy=policy)
    F.mse_loss(network(x).float(), y).backward()
    close(gradients(network), expected(), rtol=0.1, atol=0.01)


def hybrid(rank, size):
    """Sharded within rows of a mesh and replicated between them; and tensor parallel in rows."""
    rows = 2 if size % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (rows, size // rows), mesh_dim_names=("replicate", "shard"))
    x, y = (part.chunk(size)[rank] for part in batch())
    network = model()
    for layer in (*network, network):
        fully_shard(layer, mesh=mesh)
    F.mse_loss(network(x), y).backward()
    close(gradients(network), expected())

    x, y = (part.chunk(rows)[mesh.get_local_rank("replicate")] for part in batch())
    network = model()
    for block in network:
        parallelize_module(block, mesh["shard"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    for layer in (*network, network):
        fully_shard(layer, mesh=mesh["replicate"])
    F.mse_loss(network(x), y).backward()
    close(gradients(network), expected())


def pipeline(rank, size):
    """One stage of blocks on each rank, and two with an interleaved schedule."""
    x, y = batch()
    for kind, count in ((ScheduleGPipe, 1), (Schedule1F1B, 1), (ScheduleInterleaved1F1B, 2)):
        if count > 1 and size == 1:
            continue
        blocks = size * count
        parts = [copy.deepcopy(model(blocks)[index]) for index in range(rank, blocks, size)]
        stages = [
            PipelineStage(part, rank + index * size, blocks, torch.device("cpu"))
            for index, part in enumerate(parts)
        ]
        schedule = kind(stages if count > 1 else stages[0], n_microbatches=2 * size, loss_fn=F.mse_loss)
        losses = []
        for _ in range(2):
            [part.zero_grad() for part in parts]
            losses.clear()
            if size == 1:
                schedule.step(x, target=y, losses=losses)
            elif rank == 0:
                schedule.step(x)
            elif rank == size - 1:
                schedule.step(target=y, losses=losses)
            else:
                schedule.step()
        for index, part in enumerate(parts):
            start = f"{rank + index * size}."
            wanted = {name: value for name, value in expected(blocks).items() if name.startswith(start)}
            close({start + name: value for name, value in gradients(part).items()}, wanted)


def functions(rank, size):
    """Functional collectives, their gradients, and a compiled function that calls them."""
    group, everyone = dist.group.WORLD, list(range(size))
    x = torch.full((size, 2), float(rank + 1))
    total = size * (size + 1) / 2
    same(functional.all_reduce(x, "sum", group) * 1, torch.full((size, 2), total))
    same(functional.reduce_scatter_tensor(x, "sum", 0, group) * 1, torch.full((1, 2), total))
    same(functional.all_gather_tensor(x[:1], 0, group)[:, 0] * 1, torch.arange(1.0, size + 1))
    same(functional.broadcast(x, size - 1, group) * 1, torch.full((size, 2), float(size)))
    same(functional.all_to_all_single(x, None, None, group)[:, 0] * 1, torch.arange(1.0, size + 1))
    ring = [(source + 1) % size for source in everyone]
    moved = functional.permute_tensor(x.flatten(), ring, group) * 1
    same(moved, torch.full((2 * size,), float((rank - 1) % size + 1)))
    for part in functional.all_reduce_coalesced([x, x[0]], "max", group):
        same(part * 1, torch.full(part.shape, float(size)))

    if version() >= OLDEST_WITH_BACKENDS:  # fails with older versions, with any backend
        x.requires_grad_()
        gathered = functional.all_gather_tensor_autograd(x, 0, group)
        scattered = functional.reduce_scatter_tensor_autograd(gathered * 2, "sum", 0, group)
        scattered.sum().backward()
        same(x.grad, torch.full((size, 2), 2.0 * size))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x):
        y = x * 2
        dist.all_reduce(y)
        return functional.all_gather_tensor(y + 1, 0, group) * 2

    same(step(torch.ones(3)), torch.full((3 * size,), 4.0 * size + 2))


if __name__ == "__main__":
    main()
