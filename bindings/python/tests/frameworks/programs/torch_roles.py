"""Workers train, and the rank between them only serves: averages are those of the workers."""

import os

import torch

import unisono as uni
from unisono.torch import DistributedDataParallel, DistributedSampler, average_gradients, broadcast_parameters

SERVER = 1

rank = int(os.environ["UNISONO_RANK"])
world = uni.init(role="server" if rank == SERVER else "worker")
if rank == SERVER:
    for call in (DistributedDataParallel, average_gradients, broadcast_parameters):
        try:
            call(torch.nn.Linear(2, 1))
        except uni.UsageError as error:
            assert "expected a worker" in str(error), error
        else:
            raise AssertionError("a rank that only serves has trained")
else:
    assert list(DistributedSampler(range(4), shuffle=False)) == [world.worker_id, world.worker_id + 2]
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), 1.0 + world.worker_id)).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.5, 1.5]]
    plain = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(plain.weight, rank)
    broadcast_parameters(plain, root=1)
    assert plain.weight.tolist() == [[2, 2]], "the second worker's"
    plain(torch.full((1, 2), 1.0 + world.worker_id)).sum().backward()
    average_gradients(plain)
    assert plain.weight.grad.tolist() == [[1.5, 1.5]]
manager = uni.ParameterManager(torch.nn.Linear(2, 1), mode="average")
if rank != SERVER:
    manager.sync()
uni.barrier()
