"""`torch.compile` compiles wrapped models, and no code of the package."""

import os
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn

from torch_common import N, batches, equal, share, world
from unisono.torch import DistributedDataParallel

warnings.filterwarnings("error", message="Dynamo does not know")
store = f"{tempfile.gettempdir()}/store-{os.environ['UNISONO_JOB']}"
dist.init_process_group("unisono", init_method=f"file://{store}", rank=world.rank, world_size=N)


class Network(nn.Module):
    """A module whose buffers change in training; the file of its forward pass is not PyTorch's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 5))

    def forward(self, images):
        """The scores."""
        return self.layers(images)


def trained(model, compiled, part):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches(6):
        images, labels = part(batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(compiled(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return list(model.parameters())


def compare(wrap):
    """Compiled and not, a model ends with the same parameters; every graph is a part of the model."""
    graphs = []

    def backend(graph, _):
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return graph.forward

    plain = wrap(Network())
    expected = trained(plain, plain, share)
    torch.compiler.reset()
    model = wrap(Network())
    compiled = torch.compile(model, backend=backend)
    equal(trained(model, compiled, share), expected)
    assert graphs and all(any("linear" in name for name in names) for names in graphs), graphs
    with model.no_sync():
        compiled(torch.ones(3, 20)).sum().backward()
    return graphs


def ours():
    """The model is one graph."""
    assert len(compare(DistributedDataParallel)) <= 2  # no_sync makes another


def theirs():
    """PyTorch's own wrapper, whose calls enter the backend while a model is compiled."""
    compare(nn.parallel.DistributedDataParallel)


def step():
    """A compiled step, whose backward pass exchanges gradients within compiled code."""
    names = []

    def backend(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    plain = DistributedDataParallel(Network())
    expected = trained(plain, plain, share)
    torch.compiler.reset()
    model = DistributedDataParallel(Network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend=backend)
    def train(images, labels):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()

    for batch in batches(6):
        train(*share(batch))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    equal(list(model.parameters()), expected)
    assert not any("copy_" in name or "zero_" in name for name in names), names


def embedded():
    """A module with an embedding, which no wrapper excludes from tracing."""
    from unisono.torch import Embedding, EmbeddingBag

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            options = {"updater": "sgd", "lr": 0.1, "init": 0.5, "consistency": "bsp:mean"}
            self.rows, self.bag = Embedding(30, 4, 0, **options), EmbeddingBag(30, 4, **options)
            self.top = nn.Linear(8, 1)

        def forward(self, ids):
            return self.top(torch.cat([self.rows(ids[:, 0]), self.bag(ids)], 1))

    names = []

    def backend(graph, _):
        names.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    torch.compiler.reset()
    compiled_model, model = Words(), Words()
    compiled = torch.compile(compiled_model, backend=backend)
    source = torch.Generator().manual_seed(1)
    for _ in range(4):
        ids = torch.randint(30, (6, 3), generator=source)
        compiled(ids).square().sum().backward()
        model(ids).square().sum().backward()
    equal(compiled_model.rows.weight, model.rows.weight)
    equal(compiled_model.bag.weight, model.bag.weight)
    equal(compiled_model.top.weight.grad, model.top.weight.grad)
    assert any("linear" in name for name in names)
    assert not any("index_copy" in name or "arange" in name for name in names), names
    for table in (compiled_model.rows.table, compiled_model.bag.table, model.rows.table, model.bag.table):
        table.flush()
        assert table.stats().adds == 4


for part in sys.argv[1:]:
    globals()[part]()
dist.destroy_process_group()
