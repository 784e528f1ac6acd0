"""Pytrees of arrays, Flax modules and training states as parameters of a manager."""

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np

from unisono.errors import UsageError
from unisono.group import Group
from unisono.jax.collectives import all_reduce, is_on_device, like
from unisono.parameters import ParameterManager as AnyParameterManager

Values = np.ndarray[Any, Any]


class ParameterManager(AnyParameterManager):
    """Keeps a pytree synchronized between workers; see `unisono.ParameterManager` for its arguments.

    JAX arrays are immutable, so a sync takes the tree and returns a new one. `model` is the latest.

    Example:
        >>> import jax.numpy as jnp, unisono as uni, unisono.jax as unijax
        >>> world = uni.init()
        >>> manager = unijax.ParameterManager({"w": jnp.zeros(2)})
        >>> params = manager.model  # worker 0's values
        >>> params = {"w": params["w"] + 1}  # a step of training
        >>> params = manager.sync(params)
        >>> params["w"]  # with more workers, the sum of their steps
        Array([1., 1.], dtype=float32)
    """

    def sync(self, model: Any = None, *, weight: float | None = None) -> Any:
        """Exchanges with the other workers, once in every `every` calls.

        Args:
            model: The current tree; by default the one that the manager holds.
            weight: With mode="average", this worker's weight.

        Returns:
            The tree after the exchange, or unchanged if this call exchanged nothing.
        """
        super().sync(model, weight=weight)
        return self.model

    def flush(self, model: Any = None) -> Any:
        """Exchanges at once and waits for the result.

        Args:
            model: The current tree; by default the one that the manager holds.

        Returns:
            The tree after the exchange.
        """
        if model is not None:
            self._replace(model)
        super().flush()
        return self.model


class Tree:
    """The arrays of a pytree, and the latest tree.

    Only `params` of a Flax training state is used, and only the variables of kind `Param` of a Flax NNX
    module. A module is changed in place, every other tree is replaced.
    """

    in_place = False

    def __init__(self, model: Any) -> None:
        self.model = model
        """The latest tree."""
        leaves, self._tree = self._flatten(model)
        self._names = [jax.tree_util.keystr(path).strip(".[]'\"") or "array" for path, _ in leaves]
        for name, (_, leaf) in zip(self._names, leaves, strict=True):
            _check(name, leaf)
        if leaves and all(is_on_device(leaf) for _, leaf in leaves):
            self.average = self._average

    def names(self) -> list[str]:
        """The arrays' paths in the tree."""
        return self._names

    def read(self) -> list[Values]:
        """The current values."""
        return [np.asarray(leaf) for _, leaf in self._flatten(self.model)[0]]

    def write(self, values: list[Values]) -> None:
        """Makes a tree of copies of the values, on the devices of the arrays."""
        leaves = [leaf for _, leaf in self._flatten(self.model)[0]]
        self._renew([like(value, leaf) for value, leaf in zip(values, leaves, strict=True)])

    def _average(self, group: Group, factor: float, timeout: float | None) -> None:
        """Replaces every worker's arrays by their average, on the device."""
        leaves = [leaf for _, leaf in self._flatten(self.model)[0]]
        if factor != 1.0:
            # A mean over no rows is NaN, and counts as zero.
            leaves = [
                leaf * leaf.dtype.type(factor) if factor else jax.numpy.zeros_like(leaf) for leaf in leaves
            ]
        self._renew(all_reduce(leaves, "avg", group=group, timeout=timeout))

    def _renew(self, leaves: list[Any]) -> None:
        part = self._tree.unflatten(leaves)
        if _is_module(self.model):
            sys.modules["flax.nnx"].update(self.model, part)
        elif _is_state(self.model):
            self.model = self.model.replace(params=part)
        else:
            self.model = part

    def replace(self, model: Any) -> None:
        """Replaces the latest tree.

        Args:
            model: A tree with the same structure, shapes and types.

        Raises:
            UsageError: The tree differs; the latest tree stays.
        """
        leaves, structure = self._flatten(model)
        if structure != self._tree:
            raise UsageError(
                f"sync: expected a tree of the structure that the manager was made with, {self._tree}, "
                f"received {structure}; pass the same tree with new values"
            )
        for name, (_, leaf), (_, before) in zip(
            self._names, leaves, self._flatten(self.model)[0], strict=True
        ):
            _check(name, leaf)
            if (leaf.shape, leaf.dtype) != (before.shape, before.dtype):
                raise UsageError(
                    f"sync: expected {name!r} of shape {before.shape} and type {before.dtype}, as when the "
                    f"manager was made, received shape {leaf.shape} and type {leaf.dtype}; make a new manager"
                )
        self.model = model

    def _flatten(self, model: Any) -> Any:
        if _is_module(model):
            nnx: Any = sys.modules["flax.nnx"]
            model = nnx.state(model, nnx.Param)
        elif _is_state(model):
            model = model.params
        return jax.tree_util.tree_flatten_with_path(model)


def parameters_of(model: Any) -> Tree:
    """A pytree as parameters, for `unisono.ParameterManager`.

    Args:
        model: A pytree of JAX arrays, a Flax NNX module, or a Flax training state.

    Returns:
        Its parameters.
    """
    return Tree(model)


def _check(name: str, leaf: Any) -> None:
    if not isinstance(leaf, (jax.Array, np.ndarray)):
        raise UsageError(
            f"parameters: expected arrays in the tree, received {name!r}, which is a {type(leaf).__name__}; "
            "leave it out, or make it an array"
        )
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        raise UsageError(
            f"parameters: expected arrays on this process's devices, received {name!r}, which is spread over "
            "other processes; pass each process's own part"
        )


def _is_module(model: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(model, nnx.Module)


def _is_state(model: Any) -> bool:
    return hasattr(model, "params") and hasattr(model, "replace") and hasattr(model, "apply_gradients")
