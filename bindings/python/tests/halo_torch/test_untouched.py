"""A pass on parts leaves the module unchanged: shared layers, tied weights, hooks, attributes, errors."""

import copy

import pytest
import torch
from compare import compare
from torch import nn

import unisono as uni
from unisono.torch import Part, spatial
from unisono.torch.space.dry_run import run_without_data
from unisono.torch.space.parameters import call_with


class Shared(nn.Module):
    """Layers under two names, a norm that is used twice, and weights that two layers share."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.tied = nn.Conv2d(4, 4, 3, padding=1)
        self.tied.weight = self.second.weight
        self.features = nn.Sequential(self.first, self.norm, nn.ReLU(), self.second, self.norm, self.tied)
        self.again = nn.ModuleDict({"head": self.features[3:]})
        self.listed = [self.second]

    def forward(self, x):
        return self.again["head"](self.features(x)) + self.listed[0](self.first(x))


WHOLE = torch.randn(2, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def state_of(module):
    """The complete state of a module, by identity, and the values and devices of its tensors."""
    found = []
    for name, one in module.named_modules(remove_duplicate=False):
        for key, value in vars(one).items():
            inner = (
                value.items() if isinstance(value, dict) else enumerate(value if type(value) is list else [])
            )
            found.append((name, key, id(value), [(place, id(each)) for place, each in inner]))
    tensors = [*module.parameters(), *module.buffers()]
    return found, [(one.device, one.tolist()) for one in tensors]


def test_layers_and_weights_with_several_names():
    compare(Shared().double(), WHOLE, [{"h": 2}, {"h": 2, "w": 2}], passes=2)
    module = Shared().double().eval()
    with torch.no_grad():
        expected = module(WHOLE)

    def rank(grid):
        own = copy.deepcopy(module)
        before = state_of(own)
        model = spatial(own, grid)
        for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
            with mode():
                for _ in range(2):
                    found = model(Part.of(WHOLE, grid)).detach().gather()
                torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
            assert state_of(own) == before

    with uni.local_grid(h=2) as local:
        local.run(rank)


class Fails(Shared):
    """Raises in the middle, in the dry run or in the pass."""

    error: BaseException | None = None
    in_dry_run = False

    def forward(self, x):
        x = self.features(x)
        if self.error is not None and x.is_meta == self.in_dry_run:
            raise self.error
        return self.again["head"](x)


@pytest.mark.parametrize("in_dry_run", [True, False], ids=["dry run", "pass"])
@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, ValueError, uni.UsageError], ids=lambda one: one.__name__
)
def test_errors_leave_a_module_as_it_was(kind, in_dry_run):
    module = Fails().double().eval()
    module.first.register_forward_hook(lambda *_: None)

    def rank(grid):
        own = copy.deepcopy(module)
        own.error, own.in_dry_run = kind("stop"), in_dry_run
        before = state_of(own)
        model = spatial(own, grid)
        if kind is ValueError and in_dry_run:
            # An error that only the dry run raises does not make the pass fail.
            model(Part.of(WHOLE, grid))
        else:
            for _ in range(2):
                with pytest.raises(kind, match="stop"):
                    model(Part.of(WHOLE, grid))
        assert state_of(own) == before
        own.error = None
        assert model(Part.of(WHOLE, grid)).shape == (2, 4, 9, 8)
        assert all(type(one) is nn.Parameter and one.is_leaf for one in own.parameters())

    with uni.local_grid(h=2) as local:
        local.run(rank)


class Hooked(nn.Module):
    """A hook that uses the module, as feature extractors do, a counter, and a moving average."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(1, 2, 3, padding=1)
        self.features, self.calls, self.mean = {}, 0, torch.zeros(())
        self.body.register_forward_hook(self.keep("body"))
        self.norm = nn.BatchNorm2d(2)
        self.forward = self.counted

    def keep(self, name):
        def hook(module, args, output):
            self.features[name] = output
            seen.append(module)

        seen = self.seen = []
        return hook

    def counted(self, x):
        self.calls += 1
        self.body(x)
        found = self.features.pop("body")
        self.mean.mul_(0.5).add_(1)
        return self.norm(found)


def test_dry_runs_leave_no_trace_and_follow_hooks():
    uni.init()
    grid = uni.Grid(h=1, w=1)
    module = Hooked()
    model = spatial(module, grid)
    part = Part.of(torch.randn(1, 1, 8, 8), grid)
    inputs = model.dry_run(part)
    before = state_of(module)
    assert run_without_data(module, inputs, grid), "it did not come to its end"
    assert state_of(module) == before
    assert module.calls == 0 and module.mean == 0 and module.features == {} and module.seen == []
    assert module.norm.num_batches_tracked == 0
    model(part)
    assert module.calls == 1 and module.mean == 1 and module.seen == [module.body]
    assert module.norm.num_batches_tracked == 1


def test_entries_are_restored_after_any_error():
    table, other = {"a": 1, "b": 2}, {}

    def call():
        assert (table, other) == ({"a": 3, "b": 2}, {"forward": 4})
        del table["a"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_with([(table, {"a": 3}), (other, {"forward": 4})], call)
    assert (table, other) == ({"b": 2, "a": 1}, {})
