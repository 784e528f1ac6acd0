"""Models on CUDA devices: gradients, averages and tables between workers, compared with one process."""

import copy

import numpy as np
import torch

import unisono as uni
import unisono.torch as unitorch

world = uni.init()
rank, size = world.rank, world.size


def model(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    layers = torch.nn.Linear(20, 33), torch.nn.Tanh(), torch.nn.Linear(33, 3)
    return torch.nn.Sequential(*layers).to("cuda", dtype)


def batch(of, dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 + of)
    return torch.randn(8, 20, generator=generator).to("cuda", dtype)


def loss(net, of, dtype=torch.float32):
    return (net(batch(of, dtype)) ** 2).mean()


def expected_gradients(dtype=torch.float32):
    net = model(dtype=dtype)
    (sum(loss(net, one, dtype) for one in range(size)) / size).backward()
    return [one.grad for one in net.parameters()]


def close(actual, expected, tolerance=1e-6):
    for one, other in zip(actual, expected, strict=True):
        assert one.is_cuda
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


# Gradients, in one call and overlapping backward.
for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 3e-2)):
    net = model(dtype=dtype)
    loss(net, rank, dtype).backward()
    unitorch.average_gradients(net)
    close([one.grad for one in net.parameters()], expected_gradients(dtype), tolerance)
net = model()
loss(net, rank).backward()
unitorch.average_gradients(net, weight=1.0 if rank == 0 else 0.0)
alone = model()
loss(alone, 0).backward()
close([one.grad for one in net.parameters()], [one.grad for one in alone.parameters()])

wrapped = unitorch.DistributedDataParallel(model(seed=rank))
for _ in range(3):
    wrapped.zero_grad()
    loss(wrapped, rank).backward()
    close([one.grad for one in wrapped.module.parameters()], expected_gradients())

# Broadcast of the first worker's parameters and buffers.
norm = torch.nn.BatchNorm1d(5).cuda()
norm.running_mean.fill_(rank)
unitorch.broadcast_parameters(norm)
assert norm.running_mean.tolist() == [0.0] * 5

# A manager in each of its modes.
net = model(seed=rank)
manager = uni.ParameterManager(net, mode="average")
close(net.parameters(), model(seed=0).parameters())
with torch.no_grad():
    for one in net.parameters():
        one.add_(rank)
manager.sync()
with torch.no_grad():
    want = [one + (size - 1) / 2 for one in model(seed=0).parameters()]
close(net.parameters(), want)
manager.close()

for background in (False, True):
    net = model(seed=rank)
    manager = uni.ParameterManager(net, mode="delta", background=background)
    for _ in range(3):
        with torch.no_grad():
            for one in net.parameters():
                one.add_(rank + 1)
        manager.sync()
    manager.flush()
    world.barrier()
    manager.flush()
    world.barrier()
    with torch.no_grad():
        want = [one + 3 * sum(range(1, size + 1)) for one in model(seed=0).parameters()]
    close(net.parameters(), want, 1e-5)
    manager.close()

net = model()
manager = uni.ParameterManager(net, mode="gradients")
loss(net, rank).backward()
manager.sync()
close([one.grad for one in net.parameters()], expected_gradients())

# Gradients have the memory format of their parameters, as fused optimizers need it.
torch.manual_seed(1)
images = [torch.randn(4, 3, 8, 8).cuda() for _ in range(size)]
torch.manual_seed(0)
alone = torch.nn.Conv2d(3, 8, 3).to("cuda", memory_format=torch.channels_last)
spatial = unitorch.DistributedDataParallel(copy.deepcopy(alone))
for net, data in ((alone, torch.cat(images)), (spatial, images[rank])):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        net(data.to(memory_format=torch.channels_last)).square().mean().backward()
        optimizer.step()
close(spatial.module.parameters(), alone.parameters(), 1e-5)
scale = torch.nn.Module()
scale.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64, device="cuda"))
scale.weight.grad = torch.full_like(scale.weight, rank * (1 + 2j))
unitorch.average_gradients(scale)
close([scale.weight.grad], [torch.full_like(scale.weight, (size - 1) / 2 * (1 + 2j))])

# Collectives run unchanged inside compiled functions.
compiled = torch.compile(lambda x: world.all_reduce(x * 2) + world.all_gather(x)[0] + 1, backend="eager")
assert compiled(torch.ones(3, device="cuda")).tolist() == [2 * size + 2] * 3
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).cuda()
wrapped = torch.compile(unitorch.DistributedDataParallel(layers), backend="eager")
wrapped(images[rank]).square().mean().backward()
assert all(torch.equal(layers[0].weight.grad, one) for one in world.all_gather(layers[0].weight.grad))

# A model that is on the device on one worker only is an error on all.
if size > 1:
    odd = model() if rank else model().cpu()
    for one in odd.parameters():
        one.grad = torch.ones_like(one)
    try:
        unitorch.average_gradients(odd)
        raise AssertionError("that should have failed")
    except uni.UsageError as error:
        assert "CUDA" in str(error), error

path = world.cuda_path()
if rank == 0:
    print(f"models on {size} workers by {path}")
assert np.all(world.all_gather(np.array([rank])).ravel() == np.arange(size))
