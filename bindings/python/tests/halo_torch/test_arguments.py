"""Arguments other than tensors: what ranks compare, and how often a model runs without data."""

import copy
import enum
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import unisono as uni
from unisono.torch import Part, spatial
from unisono.torch.space import arguments, model
from unisono.torch.space.arguments import KnownCalls, describe


class Options:
    """An object whose repr contains its address."""

    def __init__(self):
        self.scale = 2.0


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


class Conditioned(nn.Module):
    """A module that accepts any arguments."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x, step=None, options=None, generator=None):
        x = self.conv(x)
        x = x if options is None else x * options.scale
        x = x if generator is None else x + torch.rand(1, generator=generator).item()
        return x if step is None else x * step


@pytest.fixture
def dry_runs(monkeypatch):
    """How often rank 0 has made a dry run."""
    made = []
    run_without_data = model.run_without_data

    def counted(module, inputs, grid):
        if grid.rank == 0:
            made.append(inputs.call)
        return run_without_data(module, inputs, grid)

    monkeypatch.setattr(model, "run_without_data", counted)
    return made


def on(axes, function):
    with uni.local_grid(**axes) as local:
        return local.run(function)


def test_objects_and_generators_are_the_same_on_every_rank(dry_runs):
    module = Conditioned()
    whole = torch.randn(1, 1, 8, 8)

    def rank(grid):
        net = spatial(copy.deepcopy(module), grid)
        part = Part.of(whole, grid)
        found = net(part, options=Options()).detach().gather()
        torch.testing.assert_close(found, 2 * module(whole).detach())
        generator = torch.Generator().manual_seed(3)
        for _ in range(3):
            net(part, generator=generator)
        net(part, step=1.0)
        return generator.get_state()

    first, second = on({"h": 2}, rank)
    assert torch.equal(first, second)
    assert len(dry_runs) == 3, "a generator's state makes no other call"


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (0.5, 0.25, "values of options"),
        ("a", "b", "values of options"),
        ([1, 2], [1, 3], "values of options"),
        (Mode.FAST, Mode.EXACT, "values of options"),
        (Fraction(1, 2), Fraction(1, 3), "values of options"),
        ({1, 2}, {1, 3}, "values of options"),
        (np.arange(3), np.arange(1, 4), "values of options"),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2), "values of options"),
        (1, 1.0, "types of options"),
        ([1], [1, 1], "types of options"),
        (torch.relu, torch.sigmoid, "types of options"),
        (Options(), SimpleNamespace(scale=2.0), "types of options"),
    ],
    ids=str,
)
def test_different_arguments_on_a_rank_are_named(mine, theirs, words):
    def rank(grid):
        net = spatial(nn.Identity(), grid)
        with pytest.raises(uni.UsageError, match=f"another one on rank 1 than on rank 0, with .*{words}"):
            net(Part.of(torch.zeros(1, 1, 4, 4), grid), theirs if grid.rank == 1 else mine)
        grid.group.barrier()

    on({"h": 2}, rank)


def test_values_that_change_are_tried_a_few_times(dry_runs):
    module = Conditioned()

    def rank(grid):
        net = spatial(copy.deepcopy(module), grid)
        part = Part.of(torch.zeros(1, 1, 4, 4), grid)
        for step in range(30):
            net(part, step=step / 30)
        for step in range(30):
            net(part, step=step)

    on({"h": 2}, rank)
    assert len(dry_runs) == 2 * arguments.VALUES


def test_the_cache_of_calls_is_bounded():
    known = KnownCalls()
    for kind in range(3 * arguments.KINDS):
        for value in range(3):
            assert (str(kind), value) not in known
            known.add((str(kind), value))
        known.add(("often", 0))
    assert ("often", 0) in known and ("0", 0) not in known and (str(kind), 2) in known
    assert len(known._known) == arguments.KINDS
    for value in range(1000):
        known.add(("often", value))
    assert len(known._known.get("often")) == arguments.VALUES


def test_descriptions_have_no_addresses():
    def made():
        return [Options(), lambda: None, Options().__init__, nn.ReLU(), SimpleNamespace(a=object()), object()]

    assert describe(made()) == describe(made())
    assert "0x" not in str(describe(made()))
