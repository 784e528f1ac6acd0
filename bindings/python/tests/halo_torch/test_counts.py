"""Every gradient counts once: of gathered tensors in a model, of parameters outside it, in checkpoints."""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from compare import check
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import unisono as uni
from unisono.torch import Part, spatial

GRIDS = [{"h": 2, "w": 1}, {"h": 2, "w": 2}]
WHOLE = torch.randn(1, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
TURNED = functional.affine_grid(
    torch.tensor([[[0.8, 0.1, 0.0], [-0.1, 0.8, 0.1]]], dtype=torch.float64),
    [1, 1, 8, 8],
    align_corners=False,
)


def gathered(x):
    return x.gather() if isinstance(x, Part) else x


class Body(nn.Module):
    """Two convolutions with a function between them."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 1, 3, padding=1)
        self.second = nn.Conv2d(1, 1, 3, padding=1)
        self.scale = nn.Parameter(torch.ones(1))
        self.between = between

    def forward(self, x):
        return self.between(self, self.first(x))


def compare_losses(module, loss):
    """Compares gradients after `loss(model, x)`, which may return other parameters that it used."""
    module = module.double()
    alone = copy.deepcopy(module)
    others = loss(alone, WHOLE) or []
    expected = {name: one.grad for name, one in alone.named_parameters()}
    expected |= {f"other {place}": one.grad for place, one in enumerate(others)}

    def rank(grid):
        own = copy.deepcopy(module)
        others = loss(spatial(own, grid), Part.of(WHOLE, grid).local) or []
        found = {name: one.grad for name, one in own.named_parameters()}
        return found | {f"other {place}": one.grad for place, one in enumerate(others)}

    for axes in GRIDS:
        with uni.local_grid(**axes) as local:
            for found in local.run(rank):
                check(expected, found, 1e-12)


@pytest.mark.parametrize(
    "between",
    [
        lambda own, x: gathered(x) * 2,
        lambda own, x: own.second(torch.sin(gathered(x))),
        lambda own, x: torch.fft.fft2(gathered(x)).abs() * own.scale,
        lambda own, x: x + torch.sin(gathered(x)) * own.scale,
        lambda own, x: own.second(x + functional.grid_sample(gathered(x), TURNED, align_corners=False)),
        lambda own, x: x * torch.sigmoid(gathered(x).mean()),
        lambda own, x: x / gathered(x).abs().max() + own.scale,
    ],
    ids=["times", "convolution", "fourier", "sum", "sampled", "gate", "largest"],
)
def test_tensors_gathered_inside_a_model_count_once(between):
    compare_losses(Body(between), lambda model, x: model(x).square().mean().backward())


def test_tensors_gathered_outside_count_once():
    def loss(model, x):
        functional.grid_sample(gathered(model(x)), TURNED, align_corners=False).square().mean().backward()

    def again(model, x):
        out = model(x)
        (out * torch.sin(gathered(out)) + gathered(out).mean()).square().mean().backward()

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)
    compare_losses(nn.Conv2d(1, 1, 3, padding=1), again)


def test_terms_of_parameters_in_the_loss():
    def loss(model, x):
        (model(x).square().mean() + sum(one.square().sum() for one in model.parameters())).backward()

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)


def test_learned_weights_of_losses():
    def loss(model, x):
        weight = torch.full((1,), 0.3, dtype=torch.float64, requires_grad=True)
        spread = torch.zeros((), dtype=torch.float64, requires_grad=True)
        rows = torch.linspace(0, 1, 8, dtype=torch.float64).view(8, 1).clone().requires_grad_()
        out = model(x)
        ((out * rows).square().mean() * weight * torch.exp(-spread) + spread + out.mean()).sum().backward()
        return [weight, spread, rows]

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)


def test_learned_full_tensors():
    def loss(model, x):
        image = WHOLE.clone().requires_grad_()
        given = Part.of(image, model.grid) if hasattr(model, "grid") else image
        model(given).pow(3).mean().backward()
        return [image]

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)


def test_gradients_of_only_some_inputs():
    module = nn.Conv2d(1, 1, 3, padding=1).double()
    image = WHOLE.clone().requires_grad_()
    module(image).pow(3).mean().backward(inputs=[image])

    def rank(grid):
        own = copy.deepcopy(module)
        part = Part.of(WHOLE, grid).requires_grad_()
        spatial(own, grid)(part).pow(3).mean().backward(inputs=[part])
        assert own.weight.grad is None
        torch.testing.assert_close(part.grad, image.grad[part.array.region], rtol=1e-12, atol=1e-12)

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


def test_plain_modules_after_a_model():
    made = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1),
        nn.BatchNorm2d(2),
        nn.Sigmoid(),
        nn.Conv2d(2, 2, 1),
        nn.Flatten(),
        nn.Linear(32, 3),
    ).double()

    def loss(model, x):
        head = copy.deepcopy(made)
        head(model(x)).square().mean().backward()
        return list(head.parameters())

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)


def test_foreign_parameters_inside_a_model():
    outside = torch.full((1, 1, 8, 8), 0.5, dtype=torch.float64)

    def loss(model, x):
        other = outside.clone().requires_grad_()
        inner = model.module if hasattr(model, "module") else model
        inner.between = lambda own, x: own.second(x * other)
        model(x).square().mean().backward()
        return [other]

    compare_losses(Body(None), loss)


def test_terms_of_parameters_that_a_model_keeps():
    def between(own, x):
        own.penalty = own.first.weight.square().sum()
        own.terms = {"scale": [own.scale.pow(3).sum() * own.second.weight.mean()]}
        return own.second(x * own.scale)

    def loss(model, x):
        inner = model.module if hasattr(model, "module") else model
        for _ in range(2):
            value = model(x).square().mean() + 0.1 * inner.penalty
            (value + inner.terms["scale"][0] + inner.penalty.square()).backward()

    compare_losses(Body(between), loss)


@dataclass
class Found:
    """An output type as in some models."""

    image: Any
    terms: Any = None


class Keyed(OrderedDict):
    """A dictionary whose keys are also attributes."""

    def __getattr__(self, name):
        return self[name]


@pytest.mark.parametrize("kind", [Found, Keyed])
def test_outputs_in_user_defined_classes(kind):
    def between(own, x):
        return kind(image=own.second(x), terms=[own.scale.square().sum()])

    def loss(model, x):
        found = model(x)
        assert type(found) is kind
        (found.image.square().mean() + found.terms[0]).backward()

    compare_losses(Body(between), loss)


def test_sums_that_begin_with_a_plain_tensor():
    def loss(model, x):
        value = torch.zeros((), dtype=torch.float64)
        for _ in range(2):
            value += model(x).square().mean()
        value.backward()

    compare_losses(nn.Conv2d(1, 1, 3, padding=1), loss)


class Checkpointed(nn.Module):
    """Layers that are recomputed in backward."""

    def __init__(self, reentrant=False):
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Softplus(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
        )
        self.reentrant = reentrant

    def forward(self, x):
        return checkpoint(self.body, self.stem(x), use_reentrant=self.reentrant)


def test_checkpoints():
    def loss(model, x):
        model(x).pow(3).mean().backward()

    def asked(model, x):
        wanted = list(model.parameters())
        for one, gradient in zip(wanted, torch.autograd.grad(model(x).pow(3).mean(), wanted), strict=True):
            one.grad = gradient

    compare_losses(Checkpointed(), loss)
    compare_losses(Checkpointed(), asked)


def test_the_entire_model_in_a_checkpoint():
    def loss(model, x):
        checkpoint(model, x, use_reentrant=False).pow(3).mean().backward()

    compare_losses(Body(lambda own, x: own.second(x.sigmoid())), loss)


def test_reentrant_checkpoints_are_rejected():
    module = Checkpointed(True).double()

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        with pytest.raises(uni.Unsupported, match=r"rank \d: spatial: .*use_reentrant=False"):
            model(Part.of(WHOLE, grid))
        grid.group.barrier()

    with uni.local_grid(h=2) as local:
        local.run(rank)


class Nested(Checkpointed):
    """A checkpoint nested in another."""

    def inner(self, x):
        return checkpoint(self.body, self.stem(x), use_reentrant=False)

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class Elsewhere(Checkpointed):
    """A checkpoint inside saved-tensor hooks that store tensors elsewhere."""

    def forward(self, x):
        with torch.autograd.graph.save_on_cpu():
            return super().forward(x)


def test_saved_tensors_that_are_stored_elsewhere():
    def between(own, x):
        with torch.autograd.graph.save_on_cpu():
            return own.second(x.sigmoid())

    compare_losses(Body(between), lambda model, x: model(x).square().mean().backward())


def test_nested_checkpoints_are_rejected():
    module, nested, elsewhere = Checkpointed().double(), Nested().double(), Elsewhere().double()

    def rank(grid):
        part = Part.of(WHOLE, grid)
        with pytest.raises(uni.Unsupported, match=r"rank \d: spatial: .*side by side"):
            spatial(copy.deepcopy(nested), grid)(part)
        model = spatial(copy.deepcopy(module), grid)
        with pytest.raises(uni.Unsupported, match=r"rank \d: spatial: .*side by side"):
            checkpoint(model, part.local, use_reentrant=False)
        with pytest.raises(uni.Unsupported, match="side by side"), torch.autograd.graph.save_on_cpu():
            model(part)
        with pytest.raises(uni.Unsupported, match=r"rank \d: spatial: Elsewhere: .*save_on_cpu"):
            spatial(copy.deepcopy(elsewhere), grid)(part)
        model(part).sum().backward()

    with uni.local_grid(h=2) as local:
        local.run(rank)


def test_the_loss_in_a_reentrant_checkpoint_is_rejected():
    module = nn.Conv2d(1, 1, 3, padding=1).double()

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        part = Part.of(WHOLE, grid).local.clone().requires_grad_()
        value = checkpoint(lambda x: model(x).square().mean(), part, use_reentrant=True)
        with pytest.raises(uni.Unsupported, match="use_reentrant=False"):
            value.backward()

    with uni.local_grid(h=2) as local:
        local.run(rank)


class Square(torch.autograd.Function):
    """A user-defined backward."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        return 2 * context.saved_tensors[0] * gradient


def test_functions_with_user_defined_derivatives():
    def loss(model, x):
        model(x).square().mean().backward()

    compare_losses(Body(lambda own, x: own.second(Square.apply(x))), loss)
    compare_losses(
        Body(lambda own, x: checkpoint(lambda x: own.second(Square.apply(x)), x, use_reentrant=False)), loss
    )


def test_checkpoints_that_draw_random_numbers(run_program):
    run_program(2, "checkpoints.py").check()
