"""The stack of convolutions to benchmark: PyTorch's on one rank, and the same network on parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import unisono as uni
from unisono.torch import spatial


def network(channels: int) -> torch.nn.Sequential:
    """Convolutions of one size, with the same weights in every run.

    Args:
        channels: The number of channels between the first and the last layer.

    Returns:
        The network.
    """
    torch.manual_seed(0)
    nn = torch.nn
    layers: list[torch.nn.Module] = [nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels, 1, 3, padding=1))


class Stack:
    """The network in several variants: "one" has the full images on rank 0, the others have rows of them."""

    def __init__(
        self, shape: tuple[int, int, int, int], channels: int, ways: dict[str, bool], device: str = "cpu"
    ) -> None:
        """Makes the networks and their inputs, collectively.

        Args:
            shape: The shape of all images.
            channels: The number of channels of the network.
            ways: The names of the variants on parts, and whether each computes while halos are in flight.
            device: The device.
        """
        self.grid = uni.Grid(h=-1)
        whole = torch.from_numpy(np.random.default_rng(0).random(shape, dtype="float32")).to(device)
        part = whole[uni.GlobalArray(shape, self.grid).region].contiguous()
        self.modules = {name: network(channels).to(device) for name in ("one", *ways)}
        self.models: dict[str, Any] = {"one": self.modules["one"]}
        self.inputs = {"one": whole}
        for name, overlap in ways.items():
            self.models[name] = spatial(self.modules[name], self.grid, overlap=overlap)
            self.inputs[name] = part

    def infer(self, name: str) -> Any:
        """The outputs, without gradients.

        Args:
            name: The variant.

        Returns:
            A tensor, or a part of one.
        """
        with torch.no_grad():
            return self.models[name](self.inputs[name])

    def train(self, name: str) -> None:
        """Forward and backward.

        Args:
            name: The variant.
        """
        self.models[name].zero_grad()
        self.models[name](self.inputs[name]).square().mean().backward()

    def cases(self, work: Callable[[str], Any]) -> dict[str, Callable[[], None]]:
        """The cases to time: each variant on all ranks, and "one" on rank 0 while the others wait.

        Args:
            work: `infer` or `train`.

        Returns:
            The cases, by name.
        """

        def case(name: str) -> Callable[[], None]:
            def run() -> None:
                if name != "one" or self.grid.rank == 0:
                    work(name)

            return run

        return {name: case(name) for name in self.models}

    def check(self, rtol: float, atol: float) -> None:
        """Raises an error if a variant's outputs differ from those of one rank.

        Args:
            rtol: The relative tolerance.
            atol: The absolute tolerance.
        """
        expected = self.infer("one")
        for name in list(self.models)[1:]:
            torch.testing.assert_close(self.infer(name).gather(), expected, rtol=rtol, atol=atol)
