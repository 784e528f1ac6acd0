"""A U-Net as for segmentation, which needs much memory for large images."""

from __future__ import annotations

from typing import Any

WIDTH = 16
LEVELS = 4


def unet() -> Any:
    """Makes the network, with the same weights in every run.

    Returns:
        A module from 3 channels to 1, for images whose sides are multiples of 8.
    """
    import torch

    nn = torch.nn

    def block(inputs: int, outputs: int) -> Any:
        layers: list[Any] = []
        for before in (inputs, outputs):
            layers += [nn.Conv2d(before, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(True)]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        """Pooling down, transposed convolutions up, with skip connections: Ronneberger et al., 2015."""

        def __init__(self) -> None:
            super().__init__()
            widths = [WIDTH << level for level in range(LEVELS)]
            upwards = widths[-2::-1]
            self.down = nn.ModuleList(map(block, [3, *widths], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * one, one, 2, stride=2) for one in upwards)
            self.join = nn.ModuleList(block(2 * one, one) for one in upwards)
            self.head = nn.Conv2d(WIDTH, 1, 1)

        def forward(self, x: Any) -> Any:
            kept: list[Any] = []
            for level, layers in enumerate(self.down):
                x = layers(nn.functional.max_pool2d(x, 2) if level else x)
                kept.append(x)
            kept.pop()
            for up, layers in zip(self.up, self.join, strict=True):
                x = layers(torch.cat([kept.pop(), up(x)], dim=1))
            return self.head(x)

    torch.manual_seed(0)
    return UNet()
