"""Common code of the PyTorch programs: a model, its batches, and comparisons."""

import torch
from torch import nn
from torch.nn import functional

import unisono as uni

world = uni.init()
torch.set_num_threads(1)
N = world.size


def network(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 5)).to(
        dtype
    )


def batches(count=12, size=24):
    source = torch.Generator().manual_seed(1)
    for _ in range(count):
        images = torch.randn(size, 20, generator=source)
        yield images, images[:, :5].argmax(dim=1)


def share(batch):
    """This worker's part: with equal parts, the mean of the parts' means is the mean."""
    return tuple(part.tensor_split(N)[world.rank] for part in batch)


def losses(model, step, parts):
    """The loss of each step over the full batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curve = []
    for batch in batches():
        with torch.no_grad():
            curve.append(functional.cross_entropy(model(batch[0]), batch[1]).item())
        images, labels = share(batch) if parts else batch
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        step(model)
        optimizer.step()
    return torch.tensor(curve)


def equal(one, other, tolerance=1e-5):
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def on_all_ranks(model):
    """Every rank has the same bits."""
    for parameter in model.parameters():
        for one in uni.all_gather(parameter.detach()):
            assert torch.equal(one, parameter)


def fails(call, *words):
    try:
        call()
    except uni.UsageError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"expected an error with {words}")
