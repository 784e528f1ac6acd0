"""Halo exchanges for autograd: the backward of an exchange is its adjoint, whose backward is the exchange."""

from __future__ import annotations

from typing import Any, cast

import torch

from unisono.halo import Window


class _Forward(torch.autograd.Function):
    """Gathers the inputs that the outputs need."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, window: Window) -> torch.Tensor:
        context.window = window
        return cast(torch.Tensor, window.forward(x.resolve_neg().contiguous()))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Adjoint.apply(gradients[0], context.window), None


class _Adjoint(torch.autograd.Function):
    """Sums gradients at the ranks that own the elements."""

    @staticmethod
    def forward(context: Any, gradient: torch.Tensor, window: Window) -> torch.Tensor:
        context.window = window
        return cast(torch.Tensor, window.adjoint(gradient.resolve_neg().contiguous()))

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return _Forward.apply(gradients[0], context.window), None


def halo_exchange(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Gathers the inputs that this rank's outputs of a window need; gradients are returned to their owners.

    Every rank of the grid calls it, and every rank runs `backward`: both are exchanges. It can be
    differentiated any number of times.

    Args:
        x: This rank's part of ``window.input``, in host or CUDA memory.
        window: A window made by `unisono.GlobalArray.window`.

    Returns:
        The padded part, of shape ``window.padded_shape``: compute on it without padding.

    Raises:
        UsageError: `x` is not this rank's part.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> image = uni.GlobalArray((1, 1, 8, 8), uni.Grid(h=1, w=1))
        >>> window = image.window(kernel=(3, 3), padding=1)
        >>> x = torch.ones(image.local_shape, requires_grad=True)
        >>> padded = halo_exchange(x, window)
        >>> y = torch.nn.functional.avg_pool2d(padded, 3, stride=1)
        >>> y.shape
        torch.Size([1, 1, 8, 8])
        >>> y.sum().backward()
        >>> x.grad[0, 0, 0, 0]
        tensor(0.4444)
    """
    return cast(torch.Tensor, _Forward.apply(x, window))


def halo_adjoint(gradient: torch.Tensor, window: Window) -> torch.Tensor:
    """The adjoint of `halo_exchange`: sums all ranks' contributions to each element, at its owner.

    Args:
        gradient: The gradient of the padded part.
        window: The window.

    Returns:
        The gradient of this rank's part.
    """
    return cast(torch.Tensor, _Adjoint.apply(gradient, window))
