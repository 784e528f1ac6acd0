"""Training steps for losses that are PyTorch or JAX callables."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from unisono.functions.callables import bind, check_names, input_names, positional_names
from unisono.functions.factory import function
from unisono.functions.rules import Rule, choose
from unisono.functions.shared_array import Shared, shared, updated
from unisono.functions.train import TrainFunction


def make(
    loss: Callable[..., Any],
    params: Any,
    data: list[Any],
    update_rule: Any,
    args: tuple[Any, ...],
    weighted: bool,
    kwargs: dict[str, Any],
) -> TrainFunction:
    """Creates a training step; see `make_train_function`."""
    rule, settings = choose(update_rule, args, kwargs)
    _check(rule, settings)
    sliceables = [one for one in data if isinstance(one, Shared)]
    check_names(loss, "x and y", sliceables)
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(params, torch.nn.Module)
    # Tied weights may be listed twice, but they make one step.
    trained = params if is_module else list({id(one): one for one in params}.values())
    is_torch = is_module or (torch is not None and any(isinstance(one, torch.Tensor) for one in trained))
    maker = _torch if is_torch else _jax
    return maker(loss, trained, sliceables, rule, settings, weighted)


def _check(rule: Rule, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        is_rate = name == "lr" and isinstance(value, Shared) and value.value.ndim == 0
        if not is_rate and (isinstance(value, bool) or not isinstance(value, (int, float, np.number))):
            raise TypeError(f"{rule.name}: expected {name} to be a number, received {type(value).__name__}")


def _rate(settings: dict[str, Any], dtype: Any) -> Shared:
    """The learning rate as a shared array: it may change between steps."""
    rate = settings["lr"]
    return rate if isinstance(rate, Shared) else shared(np.asarray(rate, dtype), "learning_rate")


def _state(rule: Rule, count: int, dtype: Any) -> list[Shared]:
    counter = [shared(np.zeros((), dtype), "state_0")] if rule.counts else []
    first = len(counter)
    return counter + [shared(np.zeros(count, dtype), f"state_{first + at}") for at in range(rule.vectors)]


def _weight(rows: int, weighted: bool) -> int:
    """The weight of a worker: its row count, or the same weight as any other worker that has rows."""
    return rows if weighted else min(rows, 1)


def _mean(vector: Any) -> Any:
    """The gradient in a reduced vector: the last element is the total weight of the sums before it."""
    return vector[:-1] / vector[-1]


def _sum_type(names: list[str]) -> np.dtype[Any]:
    """The type of gradients and their sums: NumPy has no bfloat16, and steps are better in float32."""
    return np.result_type(*("float32" if name == "bfloat16" else name for name in names))


def _title(loss: Any, part: str) -> str:
    return f"{part} of {getattr(loss, '__name__', None) or type(loss).__name__}"


def _torch(
    loss: Any, params: Any, sliceables: list[Any], rule: Rule, settings: dict[str, Any], weighted: bool
) -> TrainFunction:
    import torch

    every = list(params.parameters()) if isinstance(params, torch.nn.Module) else params
    tensors = [one for one in every if one.requires_grad]
    if not tensors:
        raise ValueError(
            "params: expected at least one parameter that requires a gradient, received "
            f"{len(every)} that do not"
        )
    count = sum(one.numel() for one in tensors)
    dtype = _sum_type([str(one.dtype).removeprefix("torch.") for one in tensors])
    sum_dtype = getattr(torch, dtype.name)
    vector = shared(np.zeros(count + 1, dtype), "vector")
    state, rate = _state(rule, count, dtype), _rate(settings, dtype)
    titles = [one.name for one in sliceables]
    names = input_names(loss, titles)
    positional = positional_names(loss, names, titles)

    def gradient(*rows: Any, **shareds: Any) -> Any:
        shareds.pop("vector")
        own = len(rows[0]) if rows else len(next(iter(shareds.values())))
        leading, named = bind(positional, names, rows, shareds)
        value = loss(*leading, **named)
        found = torch.autograd.grad(value, tensors, allow_unused=True)
        if all(piece is None for piece in found):
            raise ValueError(
                "expected a loss that depends on the parameters, received one that uses none of them; if the "
                "model was replaced, make the training function again"
            )
        pieces = [
            torch.zeros(one.numel(), dtype=sum_dtype) if piece is None else piece.reshape(-1).to(sum_dtype)
            for one, piece in zip(tensors, found, strict=True)
        ]
        flat, weight = torch.cat(pieces), _weight(own, weighted)
        flat = flat * weight if weight else torch.zeros_like(flat)
        return updated(value, vector=torch.cat([flat, torch.tensor([weight], dtype=flat.dtype)]))

    def apply(**shareds: Any) -> Any:
        held = [shareds[one.name] for one in state]
        own = {**settings, "lr": shareds[rate.name]}
        step, new = rule.formula(torch, _mean(shareds["vector"]), held, own)
        start = 0
        with torch.no_grad():
            for one in tensors:
                if rule.decays:
                    one.copy_(rule.keep(one, own))
                one += step[start : start + one.numel()].reshape(one.shape)
                start += one.numel()
        return updated(**{one.name: value for one, value in zip(state, new, strict=True)})

    _set_signature(gradient, names, [vector.name, *titles])
    _set_signature(apply, [], [vector.name, rate.name, *(one.name for one in state)])
    first = function(
        gradient,
        "avg",
        sliceable_shareds=sliceables,
        shareds=[vector, params] if isinstance(params, torch.nn.Module) else [vector, *tensors],
        framework="torch",
        weighted=weighted,
        name=_title(loss, "gradient"),
    )
    second = function(apply, shareds=[vector, rate, *state], framework="torch", name=_title(loss, "step"))
    return TrainFunction(first, second, vector, "sum", rate, _parameter_check(params, every))


def _parameter_check(params: Any, original: list[Any]) -> Callable[[], None]:
    """Checks before each step that the parameters are the original ones: the vector fits only them."""
    settings = [(one.requires_grad, one.dtype) for one in original]

    def check() -> None:
        now = list(params.parameters()) if hasattr(params, "parameters") else original
        if list(map(id, now)) != list(map(id, original)):
            change = "its module has other parameters"
        elif [one.requires_grad for one in now] != [requires_grad for requires_grad, _ in settings]:
            change = "requires_grad has changed"
        elif [one.dtype for one in now] != [dtype for _, dtype in settings]:
            change = "the type of parameters has changed"
        else:
            return
        raise ValueError(
            f"a training function: expected the parameters that it was made for, and {change} since; "
            "call make_train_function again"
        )

    return check


def _jax(
    loss: Any, params: Any, sliceables: list[Any], rule: Rule, settings: dict[str, Any], weighted: bool
) -> TrainFunction:
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise ImportError(
            "make_train_function: expected JAX for the gradient of a loss over shared arrays, received none; "
            "pip install jax, or pass a PyTorch module as params"
        ) from error

    trained: list[Shared] = params
    check_names(loss, "params", trained)
    shapes = [one.value.shape for one in trained]
    sizes = [int(np.prod(shape)) for shape in shapes]
    dtype = _sum_type([str(np.asarray(one.value).dtype) for one in trained])
    vector = shared(np.zeros(sum(sizes) + 1, dtype), "vector")
    state, rate = _state(rule, sum(sizes), dtype), _rate(settings, dtype)
    keys = [one.name for one in trained]
    titles = [*keys, *(one.name for one in sliceables)]
    names = input_names(loss, titles)
    positional = positional_names(loss, names, titles)

    def gradient(*rows: Any, **shareds: Any) -> Any:
        shareds.pop("vector")
        values = [shareds.pop(key) for key in keys]
        own = len(rows[0]) if rows else len(next(iter(shareds.values())))

        def of(values: list[Any]) -> Any:
            given = {**shareds, **dict(zip(keys, values, strict=True))}
            leading, named = bind(positional, names, rows, given)
            return loss(*leading, **named)

        try:
            value, found = jax.value_and_grad(of)(values)
        except jax.errors.TracerArrayConversionError as error:
            raise TypeError(
                "loss: expected a function that computes with jax.numpy, as its gradient is wanted, received "
                "one that computes with NumPy; write jnp for np in it, with import jax.numpy as jnp"
            ) from error
        pieces = [piece.reshape(-1).astype(dtype) for piece in found]
        flat, weight = jnp.concatenate(pieces), _weight(own, weighted)
        flat = flat * weight if weight else jnp.zeros_like(flat)
        return updated(value, vector=jnp.concatenate([flat, jnp.array([weight], flat.dtype)]))

    def apply(**shareds: Any) -> Any:
        held = [shareds[one.name] for one in state]
        own = {**settings, "lr": shareds[rate.name]}
        step, new = rule.formula(jnp, _mean(shareds["vector"]), held, own)
        pieces = jnp.split(step, np.cumsum(sizes)[:-1])
        changed = {
            key: (rule.keep(shareds[key], own) + piece.reshape(shape)).astype(shareds[key].dtype)
            for key, piece, shape in zip(keys, pieces, shapes, strict=True)
        }
        return updated(**changed, **{one.name: value for one, value in zip(state, new, strict=True)})

    _set_signature(gradient, names, [vector.name, *titles])
    _set_signature(apply, [], [vector.name, rate.name, *keys, *(one.name for one in state)])
    first = function(
        gradient,
        "avg",
        sliceable_shareds=sliceables,
        shareds=[vector, *trained],
        framework="jax",
        weighted=weighted,
        name=_title(loss, "gradient"),
    )
    second = function(
        apply, shareds=[vector, rate, *trained, *state], framework="jax", name=_title(loss, "step")
    )
    return TrainFunction(first, second, vector, "sum", rate)


def _set_signature(target: Any, inputs: list[str], shareds: list[str]) -> None:
    """Sets the actual signature of a function that accepts any arguments."""
    positional = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in inputs]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in shareds]
    target.__signature__ = inspect.Signature([*positional, *named])
