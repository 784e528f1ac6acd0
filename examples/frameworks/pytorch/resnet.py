"""Classifies photographs of CIFAR-10 with a residual network of 20 layers, in one process or many.

    python examples/frameworks/data.py cifar10 FOLDER
    unisono run -n 4 -- examples/frameworks/pytorch/resnet.py --data FOLDER

The network and its schedule are those of "Deep Residual Learning for Image Recognition" (He and others,
2015), section 4.2. All workers share each batch, whose size does not depend on their number. Workers
use GPUs if there are any.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import unisono as uni
from unisono.torch import DistributedDataParallel, DistributedSampler, broadcast_parameters

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from data import cifar10


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The shortcut has no parameters: it drops pixels and fills new channels with zeros."""
        around = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
        x = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(x)) + around)


def resnet(depth: int) -> nn.Module:
    """A network of `depth` = 6n + 2 layers: three stages of n blocks with 16, 32 and 64 channels."""
    if depth % 6 != 2 or depth < 8:
        raise SystemExit(f"a depth of 6n + 2 is needed, such as 20, 32 or 56, not {depth}")
    channels, layers = 16, [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    for stage in (16, 32, 64):
        for _ in range(depth // 6):
            layers.append(BasicBlock(channels, stage, stride=1 if stage == channels else 2))
            channels = stage
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return model


def augment(images: torch.Tensor) -> torch.Tensor:
    """Shifts each photograph by up to 4 pixels, and mirrors half of them."""
    padded, places = functional.pad(images, (4, 4, 4, 4)), torch.arange(32, device=images.device)
    down, right = torch.randint(9, (2, len(images), 1, 1, 1), device=images.device)
    rows = (down + places.view(1, 1, 32, 1)).expand(-1, 3, 32, 40)
    columns = (right + places).expand(-1, 3, 32, 32)
    shifted = padded.gather(2, rows).gather(3, columns)
    mirrored = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, shifted.flip(3), shifted)


def main() -> None:
    """Trains, and prints the test error after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="a folder with CIFAR-10's binary files")
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=164)
    parser.add_argument("--batch", type=int, default=128, help="photographs in a batch, of all workers")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--most", type=float, default=1.0, help="the test error that must be reached")
    options = parser.parse_args()

    world = uni.init()
    device = uni.pick_device()  # "cuda" with a device for each worker, or "cpu"
    torch.set_num_threads(1)
    data = cifar10(options.data)
    mean = torch.tensor([0.491, 0.482, 0.447]).view(1, 3, 1, 1)
    deviation = torch.tensor([0.247, 0.243, 0.262]).view(1, 3, 1, 1)
    photographs = (torch.from_numpy(one) for one in (data.images, data.test_images))
    images, tests = (((one - mean) / deviation).to(device) for one in photographs)
    labels, answers = (torch.from_numpy(one).to(device) for one in (data.labels, data.test_labels))

    torch.manual_seed(world.rank)
    model = DistributedDataParallel(resnet(options.depth).to(device))
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [options.epochs // 2, options.epochs * 3 // 4])
    sampler = DistributedSampler(images, drop_last=True)
    error = 1.0
    for epoch in range(options.epochs):
        begin = time.monotonic()
        sampler.set_epoch(epoch)
        model.train()
        for batch in torch.tensor(list(sampler)).split(options.batch // world.size):
            optimizer.zero_grad()
            functional.cross_entropy(model(augment(images[batch])), labels[batch]).backward()
            optimizer.step()
        schedule.step()
        error = test(model, tests, answers, world)
        if world.rank == 0:
            seconds = time.monotonic() - begin
            print(f"epoch {epoch + 1}: test error {error:.1%}, {seconds:.1f} s", flush=True)
    assert error <= options.most, f"a test error of {error:.1%} is more than {options.most:.0%}"


@torch.no_grad()
def test(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, world: uni.World) -> float:
    """Returns the fraction of misclassified photographs; each worker evaluates its part."""
    broadcast_parameters(model)  # including one worker's batch normalization statistics
    model.eval()
    mine = range(world.rank, len(images), world.size)
    wrong = torch.zeros(1, dtype=torch.int64, device=images.device)
    for part in torch.tensor(list(mine)).split(500):
        wrong += (model(images[part]).argmax(dim=1) != labels[part]).sum()
    return uni.all_reduce(wrong).item() / len(images)


if __name__ == "__main__":
    main()
