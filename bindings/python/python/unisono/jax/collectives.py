"""Collectives on JAX arrays and pytrees: immediate outside `jit`, as ordered callbacks inside.

Every rank makes the same calls in the same order. Inside `jit` JAX preserves it: the callbacks are ordered,
also from one jitted function to the next. `grad` differentiates through them: a rank's result is the gradient
of the sum of all ranks' functions, so all ranks must differentiate in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from unisono.array_calls import ReduceOp
from unisono.errors import Error, UsageError
from unisono.group import Group
from unisono.jax.traced import Verb, call
from unisono.worlds import world

F = TypeVar("F", bound=Callable[..., Any])
Values = np.ndarray[Any, Any]

# The exception of this process's last callback: JAX passes on only its text.
_raised: list[Error] = []


def all_reduce(
    x: Any, op: ReduceOp = "sum", *, group: Group | None = None, timeout: float | None = None
) -> Any:
    """Combines the arrays of all ranks element-wise; every rank gets the same bits.

    Args:
        x: An array or a pytree of arrays and numbers, the same types and shapes on every rank. Arrays of one
            type are sent together.
        op: "sum", "avg" (not for integers), "prod", "min" or "max".
        group: The ranks; by default all.
        timeout: Seconds until the call times out.

    Returns:
        New arrays, in the same tree.

    Example:
        >>> import jax.numpy as jnp, unisono as uni, unisono.jax as unijax
        >>> world = uni.init()
        >>> step = unijax.jit(lambda x: unijax.all_reduce(x * 2, op="avg"))
        >>> step(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    ranks = group or world()

    def reduce(arrays: list[Values]) -> list[Values]:
        return _fused(arrays, lambda flat: ranks.all_reduce(flat, op, timeout=timeout))

    def adjoint(gradients: list[Any]) -> list[Any]:
        back: list[Any] = all_reduce(gradients, op, group=group, timeout=timeout)
        return back

    reason = f"expected op sum or avg where grad goes through it, received {op}; reduce what grad returned"
    linear = adjoint if op in ("sum", "avg") else reason
    return _apply(ranks, Verb("all_reduce", reduce, lambda leaf: leaf.shape, linear, by_element=True), x)


def broadcast(x: Any, root: int = 0, *, group: Group | None = None, timeout: float | None = None) -> Any:
    """Copies the root's arrays to every rank.

    Args:
        x: An array or a pytree of arrays and numbers, the same types and shapes on every rank.
        root: The rank that has the values.
        group: The ranks; by default all.
        timeout: Seconds until the call times out.

    Returns:
        New arrays, in the same tree.
    """
    ranks = group or world()

    def copy(arrays: list[Values]) -> list[Values]:
        return _fused(arrays, lambda flat: ranks.broadcast(flat, root, timeout=timeout))

    def adjoint(gradients: list[Any]) -> list[Any]:
        sums = all_reduce(gradients, group=group, timeout=timeout)
        return [one if ranks.rank == root else jnp.zeros_like(one) for one in sums]

    return _apply(ranks, Verb("broadcast", copy, lambda leaf: leaf.shape, adjoint, by_element=True), x)


def all_gather(x: Any, *, group: Group | None = None, timeout: float | None = None) -> Any:
    """Stacks the arrays of all ranks on a new first axis.

    Args:
        x: An array or a pytree of arrays and numbers, the same types and shapes on every rank.
        group: The ranks; by default all.
        timeout: Seconds until the call times out.

    Returns:
        New arrays, in the same tree.
    """
    ranks = group or world()

    def gather(arrays: list[Values]) -> list[Values]:
        return [ranks.all_gather(array, timeout=timeout) for array in arrays]

    def adjoint(gradients: list[Any]) -> list[Any]:
        return [one[0] for one in reduce_scatter(gradients, group=group, timeout=timeout)]

    return _apply(ranks, Verb("all_gather", gather, lambda leaf: (ranks.size, *leaf.shape), adjoint), x)


def reduce_scatter(
    x: Any, op: ReduceOp = "sum", *, group: Group | None = None, timeout: float | None = None
) -> Any:
    """Combines the arrays of all ranks; each rank gets its share of the rows, as even as possible.

    Args:
        x: An array or a pytree of arrays with a first axis, the same types and shapes on every rank.
        op: As for `all_reduce`.
        group: The ranks; by default all.
        timeout: Seconds until the call times out.

    Returns:
        New arrays, in the same tree.
    """
    ranks = group or world()

    def scatter(arrays: list[Values]) -> list[Values]:
        return [ranks.reduce_scatter(array, op, timeout=timeout) for array in arrays]

    def share(leaf: Any) -> tuple[int, ...]:
        rows, rest = divmod(leaf.shape[0], ranks.size)
        return (rows + (ranks.rank < rest), *leaf.shape[1:])

    reason = "expected a call that grad does not go through, received one that it does; use all_reduce"
    return _apply(ranks, Verb("reduce_scatter", scatter, share, reason), x)


def barrier(*, group: Group | None = None, timeout: float | None = None) -> None:
    """Waits until every rank has reached this call and completed its jitted collectives; not inside `jit`.

    Args:
        group: The ranks; by default all.
        timeout: Seconds until the call times out.
    """
    _settle()
    (group or world()).barrier(timeout=timeout)


def jit(function: F, **options: Any) -> F:
    """``jax.jit`` for functions with collectives: waits for the result, and raises Unisono's own errors.

    Under plain ``jax.jit`` an error inside a callback is raised as a ``JaxRuntimeError`` with its text.

    Args:
        function: The function.
        options: Options of ``jax.jit``.

    Returns:
        The compiled function.
    """
    compiled = jax.jit(function, **options)

    @functools.wraps(function)
    def waiting(*args: Any, **named: Any) -> Any:
        _raised.clear()
        try:
            return jax.block_until_ready(compiled(*args, **named))
        except jax.errors.JaxRuntimeError as error:
            if _raised:
                raise _raised.pop() from error
            raise

    return cast(F, waiting)


def _apply(ranks: Group, verb: Verb, x: Any) -> Any:
    """Makes a call on the leaves of a tree: now, or when the traced program reaches it."""
    leaves, tree = jax.tree_util.tree_flatten(x)
    leaves = ranks._counted(lambda: [_array(leaf, verb.name) for leaf in leaves])
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        guarded = dataclasses.replace(verb, host=functools.partial(_guarded, verb.host))
        return tree.unflatten(call(guarded, leaves))
    _settle()
    if leaves and all(map(is_on_device, leaves)):
        return tree.unflatten(verb.host(leaves))
    results = verb.host([np.asarray(leaf) for leaf in leaves])
    return tree.unflatten([like(result, leaf) for result, leaf in zip(results, leaves, strict=True)])


def _array(leaf: Any, operation: str) -> Any:
    """A leaf with a type and a shape: a Python number becomes the array that JAX makes of it."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return leaf
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"rank {world().rank}: {operation}: expected arrays and numbers in the tree, received a "
            f"{type(leaf).__name__}; leave it out"
        ) from error


def _guarded(host: Callable[[list[Values]], list[Values]], leaves: list[Any]) -> list[Values]:
    try:
        return host([np.asarray(leaf) for leaf in leaves])
    except Error as error:
        _raised.append(error)
        raise


def _settle() -> None:
    """Waits for the callbacks of jitted functions: a call outside must not overtake them."""
    try:
        jax.effects_barrier()
    except jax.errors.JaxRuntimeError as error:
        if _raised:
            raise _raised.pop() from error
        raise


def _fused(arrays: list[Values], call: Callable[[Values], Any]) -> list[Values]:
    """Makes one call on all arrays of a type, concatenated."""
    if arrays and is_on_device(arrays[0]):
        return _fused_on_device(arrays, call)
    results: list[Values] = list(arrays)
    for dtype in dict.fromkeys(array.dtype for array in arrays):
        places = [place for place, array in enumerate(arrays) if array.dtype == dtype]
        flat = np.empty(sum(arrays[place].size for place in places), dtype)
        end = 0
        for place in places:
            begin, end = end, end + arrays[place].size
            results[place] = flat[begin:end].reshape(arrays[place].shape)
            results[place][...] = arrays[place]
        call(flat)
    return results


def is_on_device(leaf: Any) -> bool:
    """Whether an array is in the memory of one CUDA device.

    Args:
        leaf: The array.

    Returns:
        False for arrays that are traced, sharded over devices, or in host memory.
    """
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return False
    devices = leaf.devices()
    return len(devices) == 1 and next(iter(devices)).platform == "gpu"


def _fused_on_device(arrays: list[Any], call: Callable[[Any], Any]) -> list[Any]:
    results = list(arrays)
    for dtype in dict.fromkeys(array.dtype for array in arrays):
        places = [place for place, array in enumerate(arrays) if array.dtype == dtype]
        flat = jnp.array(jnp.concatenate([arrays[place].reshape(-1) for place in places]), copy=True)
        call(_Fresh(flat.block_until_ready()))
        end = 0
        for place in places:
            begin, end = end, end + arrays[place].size
            results[place] = flat[begin:end].reshape(arrays[place].shape)
    return results


class _Fresh:
    """A new array without other references: it may be written, although JAX treats it as immutable."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        # Without a version, because only the new form marks the memory as read-only.
        return self._array.__dlpack__(stream=stream)


def like(value: Values, leaf: Any) -> Any:
    """A copy of a value like a leaf: a JAX array on the same devices, or a NumPy array.

    Args:
        value: The value, of any float type if the leaf is a float.
        leaf: The leaf.

    Returns:
        The copy, in the leaf's type.
    """
    copy = value.astype(leaf.dtype)
    return jax.device_put(copy, leaf.sharding) if isinstance(leaf, jax.Array) else copy
