"""Tensors are sent between ranks."""

import torch

import unisono as uni

world = uni.init()
gradient = torch.full((4, 5), float(world.rank), dtype=torch.bfloat16)
assert (uni.all_reduce(gradient, op="avg") == 0.5).all()
layer = torch.nn.Linear(10, 10)
for parameter in layer.parameters():
    uni.broadcast(parameter)
weights = uni.all_gather(layer.weight)
assert torch.equal(weights[0], weights[1])
part = uni.scatter(torch.arange(7) if world.rank == 0 else torch.empty(0))
assert torch.equal(part, torch.arange(7)[4 * world.rank : 4 + 3 * world.rank])
negative = torch._neg_view(torch.tensor([1.0 + world.rank, 5.0]))
assert uni.all_reduce(negative, op="max").tolist() == [-1, -5]
if world.rank == 0:
    uni.send(negative[:1], to=1)
else:
    assert uni.recv(torch.zeros(1), source=0).item() == -1
kept = torch.ones(3)
uni.reduce(kept, root=0)
assert kept._version == (world.rank == 0), "only the root's array is written"
pending = uni.all_reduce(torch.ones(1000), wait=False)
assert (pending.wait() == 2).all()
