"""Networks on real ranks, against the same network on this rank alone."""

import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "programs")]

from compare import alone, apart, check  # noqa: E402
from networks import Decoder, ResNet18, UNet  # noqa: E402

import unisono as uni  # noqa: E402
from note import note  # noqa: E402

torch.set_num_threads(1)
world = uni.init()
grids = {
    1: [{"h": 1, "w": 1}],
    2: [{"w": 2}],
    3: [{"h": 3}],
    4: [{"h": 2, "w": 2}, {"data": 2, "w": 2}],
    6: [{"h": 2, "w": 3}],
}
networks = [
    (ResNet18(4), (2, 3, 37, 45)),
    (UNet(2), (2, 1, 19, 22)),
    (Decoder(), (2, 3, 5, 7)),
    (
        torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Dropout(0.3), torch.nn.Dropout2d(0.3)),
        (2, 1, 9, 9),
    ),
]
for network, shape in networks:
    generator = torch.Generator().manual_seed(1)
    for one in network.parameters():
        torch.nn.init.normal_(one, std=0.2, generator=generator)
    network.double()
    whole = torch.randn(shape, generator=generator, dtype=torch.float64)
    expected = alone(network, whole)
    for axes in grids[world.size]:
        check(expected, apart(uni.Grid(**axes), network, whole), 1e-10)
# What was drawn was drawn on every rank.
states = world.all_gather(torch.get_rng_state())
assert all(torch.equal(states[0], one) for one in states)
note(world.rank, "equal")
