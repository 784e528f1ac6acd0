"""Random numbers of parts: bit for bit those of one process, within the memory of one part."""

import pytest
import torch
from test_reductions import Allocations
from torch.nn import functional

import unisono as uni
from unisono.torch import Part
from unisono.torch.space import streams

DRAWS = {
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 3, 90),
    "randint_like, from 0": lambda x: torch.randint_like(x, 90, dtype=torch.int64),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli, one number": lambda x: torch.bernoulli(x, 0.3),
    "dropout": lambda x: functional.dropout(x, 0.3),
    "dropout2d": lambda x: functional.dropout2d(x, 0.3),
    "alpha_dropout": lambda x: functional.alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout": lambda x: functional.feature_alpha_dropout(x, 0.3, True),
    "normal_": lambda x: x.clone().normal_(1, 2),
    "uniform_": lambda x: x.clone().uniform_(-1, 2),
    "exponential_": lambda x: x.clone().exponential_(),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.2),
    "log_normal_": lambda x: x.clone().log_normal_(),
}
FORMATS = {
    "contiguous": lambda x: x,
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
}


class Drawn(torch.nn.Module):
    """Draws, and then draws again, which shows how much was drawn."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return self.draw(x), torch.rand(3)


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_are_those_of_one_process(name, monkeypatch):
    # Chunks that are smaller than the rows of some tensors, and larger than those of others.
    monkeypatch.setattr(streams, "CHUNK", 48)
    turn = 0
    for shape in ((2, 3, 5, 7), (1, 1, 3, 4), (2, 4, 4, 4), (1, 2, 2, 61)):
        for format in FORMATS.values():
            for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
                whole = format(torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).to(dtype))
                axes = ({"h": 1}, {"h": 2}, {"w": 3}, {"h": 2, "w": 2}, {"h": 5}, {"h": 3, "w": 2})[turn % 6]
                turn += 1
                torch.manual_seed(3)
                expected, after = Drawn(DRAWS[name])(whole)

                def rank(grid, whole=whole, format=format):
                    part = Part.here(format(Part.of(whole, grid).local), whole.shape, grid)
                    if grid.rank == 0:
                        torch.manual_seed(3)
                    grid.group.barrier()
                    made, after = uni.torch.spatial(Drawn(DRAWS[name]), grid)(part)
                    return made.gather(), after

                with uni.local_grid(**axes) as local:
                    for found, more in local.run(rank):
                        torch.testing.assert_close(
                            found, expected, rtol=0, atol=0 if "alpha" not in name else 0.02
                        )
                        assert torch.equal(more, after), (shape, axes)


@pytest.mark.parametrize(
    "name", ["rand_like", "randn_like", "dropout", "bernoulli", "alpha_dropout", "normal_"]
)
def test_random_numbers_use_the_memory_of_one_part(name, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK", 1 << 10)
    shape = (1, 1, 256, 256)

    def rank(grid):
        local = Part.of(torch.rand(shape), grid).local.clone()
        with Allocations() as allocations:
            DRAWS[name](Part.here(local, shape, grid))
        assert allocations.largest <= local.nbytes

    def each(grid):
        # Outside of a model, ranks that are threads share one generator, so they draw one after the other.
        for turn in range(grid.size):
            if grid.rank == turn:
                rank(grid)
            grid.group.barrier()

    with uni.local_grid(h=4) as local:
        local.run(each)
