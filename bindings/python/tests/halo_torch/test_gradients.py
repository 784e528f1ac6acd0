"""Gradients in every way in which a training loop may request them."""

import copy

import pytest
import torch
from compare import check
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part, halo_exchange, spatial


def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        nn.BatchNorm2d(4),
        nn.Softplus(),
        nn.MaxPool2d(2, 1, 1),
        nn.ConvTranspose2d(4, 4, 3, 2, 1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Upsample(scale_factor=1.5, mode="bilinear"),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
        nn.Linear(4 * 10 * 8, 3),
        nn.Tanh(),
        nn.Linear(3, 2),
    ).double()


def penalty(module, x):
    """A loss that contains a gradient: its own gradient needs a second one."""
    out = module(x)
    loss = (out * torch.tensor([1.0, -2.0], dtype=torch.float64)).sum() + out.square().mean()
    wanted = [x, *(one for one in module.parameters() if one.requires_grad)]
    first = torch.autograd.grad(loss, wanted, create_graph=True)
    return loss, first


def test_double_backward():
    module = network()
    whole = torch.randn(2, 2, 11, 9, dtype=torch.float64)

    def total(first):
        return sum(one.square().sum() for one in first)

    def single():
        own = copy.deepcopy(module)
        x = whole.clone().requires_grad_()
        loss, first = penalty(own, x)
        (loss + total(first)).backward()
        return {"x": x.grad, **{name: one.grad for name, one in own.named_parameters()}}

    def rank(grid):
        own = copy.deepcopy(module)
        model = spatial(own, grid)
        x = Part.of(whole, grid).local.clone().requires_grad_()
        loss, first = penalty(model, x)
        # The gradient of the input is a part; those of the parameters are the same on every rank.
        own_first = [Part.here(first[0], whole.shape, grid), *(Part.of(one, grid, {}) for one in first[1:])]
        (loss + total(own_first)).backward()
        gradient = Part.here(x.grad, whole.shape, grid).gather()
        return {"x": gradient, **{name: one.grad for name, one in own.named_parameters()}}

    expected = single()
    for axes in [{"h": 2, "w": 2}, {"w": 3}, {"h": 4}]:
        with uni.local_grid(**axes) as local:
            for found in local.run(rank):
                check(expected, found, 1e-9)


def test_the_exchange_alone_can_be_differentiated_twice():
    whole = torch.randn(2, 3, 11, 9, dtype=torch.float64)
    kernel = torch.randn(4, 3, 3, 5, dtype=torch.float64)
    x = whole.clone().requires_grad_()
    y = functional.conv2d(x, kernel, stride=(2, 1), padding=(1, 3))
    (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), x)

    def rank(grid):
        array = uni.GlobalArray(whole.shape, grid)
        window = array.window((3, 5), (2, 1), (1, 3))
        part = whole[array.region].clone().requires_grad_()
        out = functional.conv2d(halo_exchange(part, window), kernel, stride=(2, 1))
        (once,) = torch.autograd.grad((out**3).sum(), part, create_graph=True)
        (twice,) = torch.autograd.grad((once**2).sum(), part)
        torch.testing.assert_close(once, first[array.region], rtol=1e-12, atol=1e-9)
        torch.testing.assert_close(twice, second[array.region], rtol=1e-12, atol=1e-9)

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


def test_losses_of_parts_give_the_loss_of_the_full_tensor():
    module = nn.Conv2d(1, 3, 3, padding=1).double()
    whole = torch.randn(2, 1, 9, 7, dtype=torch.float64)
    classes = torch.randint(0, 3, (2, 9, 7))
    classes[0, 0, :3] = -100
    weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    losses = {
        "cross": lambda out, kind: functional.cross_entropy(out, kind, weight),
        "plain": lambda out, kind: functional.cross_entropy(out, kind),
        "summed": lambda out, kind: functional.cross_entropy(out, kind, reduction="sum"),
        "mse": lambda out, kind: functional.mse_loss(out, out.detach() * 0.5),
        "l1": lambda out, kind: functional.l1_loss(out.sum(1), kind.to(out.dtype)),
        "bce": lambda out, kind: functional.binary_cross_entropy_with_logits(
            out[:, 0], (kind > 0).to(out.dtype)
        ),
    }

    def rank(grid, name, expected):
        own = copy.deepcopy(module)
        model = spatial(own, grid)
        out = model(Part.of(whole, grid))
        loss = losses[name](out, classes)
        again = losses[name](out, Part.of(classes, grid, {"h": 1, "w": 2}))
        assert loss.shape == () and abs(loss.item() - again.item()) < 1e-12
        loss.backward()
        check(
            expected, {"loss": loss.local.detach(), "weight": own.weight.grad, "bias": own.bias.grad}, 1e-12
        )

    with uni.local_grid(h=2, w=2) as local:
        for name, loss in losses.items():
            own = copy.deepcopy(module)
            value = loss(own(whole), classes)
            value.backward()
            local.run(rank, name, {"loss": value.detach(), "weight": own.weight.grad, "bias": own.bias.grad})


def test_losses_of_local_elements_are_summed_over_ranks():
    module = nn.Conv1d(1, 2, 3, padding=1).double()
    whole = torch.randn(1, 1, 10, dtype=torch.float64)
    own = copy.deepcopy(module)
    own(whole).square().sum().backward()

    def rank(grid):
        mine = copy.deepcopy(module)
        spatial(mine, grid)(Part.of(whole, grid).local).local.square().sum().backward()
        torch.testing.assert_close(mine.weight.grad, own.weight.grad, rtol=1e-12, atol=1e-12)

    with uni.local_grid(w=3) as local:
        local.run(rank)


def test_frozen_parameters_and_inference():
    module = network().eval()
    module[0].weight.requires_grad_(False)
    whole = torch.randn(2, 2, 11, 9, dtype=torch.float64)
    expected = module(whole).detach()

    def rank(grid):
        model = spatial(copy.deepcopy(module), grid)
        part = Part.of(whole, grid)
        with torch.no_grad():
            torch.testing.assert_close(model(part).local, expected)
        with torch.inference_mode():
            torch.testing.assert_close(model(part.local).local, expected)
        model(part).sum().backward()
        assert model.module[0].weight.grad is None and model.module[0].bias.grad is not None

    with uni.local_grid(h=2, w=2) as local:
        local.run(rank)


def test_training_equals_one_process():
    module = network()
    whole = torch.randn(2, 2, 11, 9, dtype=torch.float64)

    def train(model, own, x):
        optimizer = torch.optim.SGD(own.parameters(), lr=0.05, momentum=0.9)
        for _ in range(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(own.parameters(), 0.5)
            optimizer.step()
        return {name: one.detach().clone() for name, one in own.state_dict().items()}

    def rank(grid):
        own = copy.deepcopy(module)
        return train(spatial(own, grid), own, Part.of(whole, grid))

    own = copy.deepcopy(module)
    expected = train(own, own, whole)
    with uni.local_grid(h=2, w=2) as local:
        for found in local.run(rank):
            check(expected, found, 1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.MaxPool2d(2)).to(dtype)
    whole = torch.randn(1, 1, 8, 8).to(dtype)
    expected = copy.deepcopy(module)(whole)

    def rank(grid):
        out = spatial(copy.deepcopy(module), grid)(Part.of(whole, grid))
        assert out.dtype == dtype
        torch.testing.assert_close(out.gather(), expected, rtol=0.05, atol=0.05)
        out.float().sum().backward()

    with uni.local_grid(h=2) as local:
        local.run(rank)


@pytest.mark.parametrize(
    "last",
    [
        nn.Conv2d(4, 3, 3, stride=3, padding=1, bias=False),
        nn.ConvTranspose2d(4, 2, 3, 2, 1, 1),
        nn.BatchNorm2d(4),
        nn.LayerNorm((4, 5, 7)),
        nn.MaxPool2d(2),
        nn.Upsample(size=(3, 9), mode="bicubic"),
        nn.ReplicationPad2d(3),
        nn.Sequential(nn.Flatten(), nn.Linear(140, 3)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_double_backward_with_ranks_without_rows(last):
    """Ranks without rows communicate like the others, also in double backward."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Softplus(), last).double()
    whole = torch.randn(2, 4, 5, 7, dtype=torch.float64)

    def results(own, model, x):
        out = model(x)
        (first,) = torch.autograd.grad((out.sin() * out).sum(), x, create_graph=True)
        return first

    x = whole.clone().requires_grad_()
    own = copy.deepcopy(module)
    results(own, own, x).pow(3).sum().backward()
    expected = {"x": x.grad, **{name: one.grad for name, one in own.named_parameters()}}

    def rank(grid):
        own = copy.deepcopy(module)
        x = Part.of(whole, grid).local.clone().requires_grad_()
        first = results(own, spatial(own, grid), x)
        Part.here(first, whole.shape, grid).pow(3).sum().backward()
        gradient = Part.here(x.grad, whole.shape, grid).gather()
        return {"x": gradient, **{name: one.grad for name, one in own.named_parameters()}}

    for axes in ({"h": 6}, {"data": 2, "h": 3}):
        with uni.local_grid(**axes) as local:
            for found in local.run(rank):
                # A parameter that is only added has no second gradient: None, or zeros.
                none = {name: torch.zeros_like(found[name]) for name in found if expected[name] is None}
                check({**expected, **none}, found, 1e-10)


def test_writing_to_a_part_copies_no_gradient():
    def names(node, found):
        if node is not None and type(node).__name__ not in found:
            found.add(type(node).__name__)
            for before, _ in node.next_functions:
                names(before, found)
        return found

    # Made once: ranks are threads here, which would draw from one generator.
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(True))

    def rank(grid):
        y = spatial(copy.deepcopy(net), grid)(torch.rand(1, 1, 4, 8) + grid.rank)
        y += y * 2
        found = names(y.local.grad_fn, set())
        assert "ReluBackward0" in found and "CopySlices" not in found, found

    with uni.local_grid(h=2) as grid:
        grid.run(rank)
