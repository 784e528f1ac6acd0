"""Typical training loops: after some steps, all state is that of one process."""

import copy

import pytest
import torch
from compare import check, weighted
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import Part, spatial

GRIDS = [{"h": 2, "w": 2}, {"w": 3}, {"data": 2, "h": 2}, {"h": 6}]
WHOLE = torch.randn(4, 3, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def whole_of(x):
    return x.gather() if isinstance(x, Part) else x


def both(run, module, tolerance, grids=GRIDS):
    """Compares the results of ``run(module, model, part)``, where `part` makes the model's inputs."""
    own = copy.deepcopy(module)
    expected = run(own, own, lambda x: x)

    def rank(grid):
        own = copy.deepcopy(module)
        return run(own, spatial(own, grid), lambda x: Part.of(x, grid))

    for axes in grids:
        with uni.local_grid(**axes) as local:
            for found in local.run(rank):
                check(expected, found, tolerance)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_five_steps(kind, tolerance):
    def run(module, model, part):
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
        for step in range(5):
            optimizer.zero_grad()
            out = model(part((WHOLE * (1 + step)).to(kind)))
            functional.cross_entropy(out, torch.tensor([0, 1, 2, 0])).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        found = {name: one.clone() for name, one in model.state_dict().items()}
        with torch.inference_mode():
            found["output"] = whole_of(model.eval()(part(WHOLE.to(kind)))).clone()
        return found

    both(run, network().to(kind), tolerance)


def test_steps_of_adam_and_averages_of_weights():
    def run(module, model, part):
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        average = torch.optim.swa_utils.AveragedModel(model)
        for step in range(3):
            optimizer.zero_grad()
            weighted(model(part(WHOLE + step))).backward()
            optimizer.step()
            average.update_parameters(model)
        return {"output": whole_of(average.eval()(part(WHOLE))).detach(), **module.state_dict()}

    both(run, network().double(), 1e-8, GRIDS[:2])


def test_an_adversarial_pair_of_models():
    torch.manual_seed(2)
    maker = nn.Sequential(nn.ConvTranspose2d(3, 3, 4, 2, 1), nn.BatchNorm2d(3), nn.Tanh())
    module = nn.ModuleDict({"maker": maker, "judge": network()}).double()
    real = functional.interpolate(WHOLE, scale_factor=2)

    def run(module, maker, judge, part):
        fake = maker(part(WHOLE))
        functional.softplus(-judge(fake)).mean().backward()
        false, true = judge(fake.detach()), judge(part(real))
        (functional.softplus(false) + functional.softplus(-true)).mean().backward()
        found = {name: one.grad for name, one in module.named_parameters()}
        return {**found, **dict(module.named_buffers())}

    own = copy.deepcopy(module)
    expected = run(own, own["maker"], own["judge"], lambda x: x)

    def rank(grid):
        own = copy.deepcopy(module)
        models = spatial(own["maker"], grid), spatial(own["judge"], grid)
        return run(own, *models, lambda x: Part.of(x, grid))

    with uni.local_grid(h=2, w=2) as local:
        for found in local.run(rank):
            check(expected, found, 1e-10)


def test_channels_last():
    def run(module, model, part):
        part = part(WHOLE.contiguous(memory_format=torch.channels_last))
        if isinstance(part, Part):
            part = part.local.contiguous(memory_format=torch.channels_last)
        out = model(part)
        weighted(out).backward()
        return {
            "output": whole_of(out).detach(),
            **{name: one.grad for name, one in module.named_parameters()},
        }

    both(run, network().double().to(memory_format=torch.channels_last), 1e-10)


def test_mixed_precision():
    def run(module, model, part):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(part(WHOLE.float()))
            loss = functional.mse_loss(out.float(), torch.ones(4, 3))
        loss.backward()
        return {
            "output": whole_of(out).detach(),
            **{name: one.grad for name, one in module.named_parameters()},
        }

    # Eight bits of mantissa: sums in another order differ in the last of them.
    both(run, network(), 3e-2, GRIDS[:2])


def test_frozen_layers_hooks_and_accumulation():
    def run(module, model, part):
        module[0].requires_grad_(False)
        module[4].weight.requires_grad_(False)
        seen = []
        module[3].register_full_backward_hook(lambda *_: seen.append(True))
        module[3].register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
        module[5].register_forward_hook(lambda _, inputs, output: output * 2)
        for scale in (1, 2):
            value = weighted(model(part(WHOLE * scale)))
            value.backward(retain_graph=True)
            value.backward()
        assert len(seen) == 4
        return {name: one.grad for name, one in module.named_parameters()}

    both(run, network().double(), 1e-10, GRIDS[:3])
