"""Networks with the full structure of well-known ones, but few channels."""

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet18(nn.Module):
    """Eighteen layers after a 7 x 7 convolution of stride 2: He et al., 2015."""

    def __init__(self, width=8, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        for number in range(1, 5):
            stride = 1 if number == 1 else 2
            blocks = [
                BasicBlock(widths[number - 1], widths[number], stride),
                BasicBlock(widths[number], widths[number], 1),
            ]
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class DoubleConv(nn.Module):
    """Two convolutions with group normalisation."""

    def __init__(self, dims, inputs, outputs):
        super().__init__()
        conv = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.body = nn.Sequential(
            conv(inputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.SiLU(),
            conv(outputs, outputs, 3, padding=1),
            nn.GroupNorm(2, outputs),
            nn.SiLU(),
        )

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    """Pooling down, transposed convolutions up, with skip connections: Ronneberger et al., 2015."""

    def __init__(self, dims, width=4, levels=3, classes=2):
        super().__init__()
        conv, up, pool = {
            2: (nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d),
            3: (nn.Conv3d, nn.ConvTranspose3d, nn.MaxPool3d),
        }[dims]
        widths = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(
            DoubleConv(dims, before, after) for before, after in zip([1, *widths], widths, strict=False)
        )
        self.pool = pool(2)
        self.up = nn.ModuleList(up(2 * one, one, 2, 2) for one in reversed(widths[:-1]))
        self.join = nn.ModuleList(DoubleConv(dims, 2 * one, one) for one in reversed(widths[:-1]))
        self.head = conv(width, classes, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else self.pool(x))
            kept.append(x)
        for up, join, across in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = up(x)
            if x.shape != across.shape:
                missing = [size - here for size, here in zip(across.shape[2:], x.shape[2:], strict=True)]
                x = functional.pad(x, [one for size in reversed(missing) for one in (0, size)])
            x = join(torch.cat([across, x], dim=1))
        return self.head(x)


class ResnetBlock(nn.Module):
    """Group normalisation, SiLU and a convolution, twice, with a shortcut."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1 = nn.GroupNorm(2, inputs, eps=1e-6)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = nn.GroupNorm(2, outputs, eps=1e-6)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv1(functional.silu(self.norm1(x)))
        h = self.conv2(functional.silu(self.norm2(h)))
        return self.shortcut(x) + h


class Attention(nn.Module):
    """Self-attention between all positions."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(2, channels, eps=1e-6)
        self.q = nn.Conv2d(channels, channels, 1)
        self.k = nn.Conv2d(channels, channels, 1)
        self.v = nn.Conv2d(channels, channels, 1)
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = self.q(h), self.k(h), self.v(h)
        b, c, rows, columns = q.shape
        q, k, v = (one.reshape(b, c, rows * columns).permute(0, 2, 1) for one in (q, k, v))
        weights = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)) * c**-0.5, dim=2)
        h = torch.bmm(weights, v).permute(0, 2, 1).reshape(b, c, rows, columns)
        return x + self.proj_out(h)


class Decoder(nn.Module):
    """An image decoder: a middle with attention, then blocks and upsampling."""

    def __init__(self, latent=3, width=4, levels=3):
        super().__init__()
        top = width * 2 ** (levels - 1)
        self.conv_in = nn.Conv2d(latent, top, 3, padding=1)
        self.mid = nn.Sequential(ResnetBlock(top, top), Attention(top), ResnetBlock(top, top))
        self.up = nn.ModuleList()
        channels = top
        for level in reversed(range(levels)):
            out = width * 2**level
            steps = [ResnetBlock(channels, out), ResnetBlock(out, out)]
            if level:
                steps += [nn.Upsample(scale_factor=2.0, mode="nearest"), nn.Conv2d(out, out, 3, padding=1)]
            self.up.append(nn.Sequential(*steps))
            channels = out
        self.norm_out = nn.GroupNorm(2, channels, eps=1e-6)
        self.conv_out = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, z):
        h = self.mid(self.conv_in(z))
        for level in self.up:
            h = level(h)
        return torch.tanh(self.conv_out(functional.silu(self.norm_out(h))))
