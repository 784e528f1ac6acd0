"""Operator dispatch: a table from names to rules, filled by the modules that `rules` names."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from unisono.errors import Unsupported, UsageError
from unisono.halo import Grid
from unisono.torch.space.failures import shared_error
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import once, share
from unisono.torch.space.part import Part, global_shape, unflattened, unwrap, wrap
from unisono.torch.space.passes import check_checkpoint, counts_fully, in_backward, in_custom_backward, within

Function = Callable[..., Any]
Rule = Callable[..., Any]

_RULES: dict[str, Rule] = {}
# Rules that also apply to replicated parts; for those, the plain operation is otherwise enough.
_ALWAYS: set[str] = set()
# Rules that handle flattened tensors.
_FLAT: set[str] = set()
# Operations that may run any of the exchanges that their tensors were made with.
_BACKWARD = ("backward", "grad")


def rule(*names: str, always: bool = False, flat: bool = False) -> Callable[[Rule], Rule]:
    """Declares the rule of one or more operations.

    Args:
        names: The operations' names in `torch`, `torch.Tensor` or `torch.nn.functional`.
        always: Whether the rule also applies to replicated parts.
        flat: Whether the rule handles flattened tensors.

    Returns:
        A decorator for a function that is called with the operation, its arguments and its options.
    """

    def declare(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
            if always:
                _ALWAYS.add(name)
            if flat:
                _FLAT.add(name)
        return function

    return declare


def has_rule(name: str) -> bool:
    """Whether an operation has a rule.

    Args:
        name: Its name.

    Returns:
        Whether it has.
    """
    return name in _RULES


def dispatch(function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Runs an operation that has a part among its arguments.

    Args:
        function: The operation.
        args: Its arguments.
        kwargs: Its options.

    Returns:
        Its result.

    Raises:
        Unsupported: The operation has no rule.
    """
    name = name_of(function)
    try:
        return _done(name, function, args, kwargs)
    except Exception as error:
        parts = list(parts_in(args, kwargs))
        grid = parts[0].grid
        if within(grid):
            raise
        raised = _named(error, name, grid)
        if name in _RULES and not in_backward() and (name in _BACKWARD or not all(map(_is_copy, parts))):
            raised = shared_error(raised, grid)
        if raised is error:
            raise
        raise raised from error


def _named(error: Exception, name: str, grid: Grid) -> Exception:
    """The same error, with the rank and the operation."""
    words = str(error)
    if not isinstance(error, (UsageError, Unsupported)) or words.startswith("rank "):
        return error
    words = words if words.startswith(f"{name}: ") else f"{name}: {words}"
    return type(error)(f"rank {grid.rank}: {words}")


def _is_copy(one: Part) -> bool:
    return one.place.is_replicated and one.flat is None


def _done(name: str, function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    found = _RULES.get(name)
    if name not in _FLAT:
        args, kwargs = replaced(args, unflattened), replaced(dict(kwargs), unflattened)
    parts = list(parts_in(args, kwargs))
    if in_custom_backward(parts[0].grid):
        plain = replaced((args, kwargs), unwrap)
        return function(*plain[0], **plain[1])
    placeholder = any(one.placeholder for one in parts)
    check_checkpoint(parts[0].grid)
    whole = name not in _ALWAYS and all(map(_is_copy, parts))
    # In a dry run, rules give results without computing them.
    if whole and (found is None or not placeholder):
        return on_copies(function, args, kwargs)
    if found is None:
        return reject(f"a rule for parts of a tensor for {name}")
    if placeholder:
        # Tensors that a rule makes for its own use have elements, even in a dry run.
        with torch.device("cpu"):
            return found(function, *args, **kwargs)
    return found(function, *args, **kwargs)


def on_copies(function: Function, args: Any, kwargs: Any) -> Any:
    """Runs an operation on replicated parts: each rank runs it locally.

    Args:
        function: The operation.
        args: Its arguments.
        kwargs: Its options.

    Returns:
        The result, which is replicated.
    """
    layout = next(parts_in(args, kwargs)).place
    local = replaced((args, dict(kwargs)), unwrap, lambda plain: plain_once(plain, layout))
    result = function(*local[0], **local[1])
    return wrapped_replicated(result, layout)


def plain_once(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Prepares a plain tensor for an operation on parts that are replicated along some axes.

    Args:
        x: The plain tensor.
        layout: The layout of the other operand.

    Returns:
        The same values; `counts_fully` describes the tensor's gradient.
    """
    if counts_fully(x, layout.grid):
        return share(x, layout.grid, layout.split)
    return once(x, layout.grid, layout.copies)


def wrapped_replicated(result: Any, like: Layout) -> Any:
    """Wraps the tensors of a result as replicated parts.

    Args:
        result: The result of an operation.
        like: A layout of the same grid.

    Returns:
        The result, with parts instead of tensors.
    """
    return replaced(result, lambda part: part, lambda one: wrap(one, layout_of(like.grid, one.shape, {})))


def parts_in(*values: Any) -> Iterator[Part]:
    """All parts among arguments, including those in lists.

    Args:
        values: Arguments.

    Yields:
        The parts.
    """
    for value in values:
        if isinstance(value, Part):
            yield value
        elif isinstance(value, Mapping):
            yield from parts_in(*value.values())
        elif isinstance(value, (list, tuple)):
            yield from parts_in(*value)
        elif is_record(value):
            yield from parts_in(vars(value))


def is_record(value: Any) -> bool:
    """Whether a value is an instance of a data class, such as a model's output.

    Args:
        value: Anything.

    Returns:
        Whether it is one.
    """
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__")


def replaced(
    value: Any, part: Callable[[Part], Any], plain: Callable[[torch.Tensor], Any] | None = None
) -> Any:
    """Copies arguments, replacing the tensors.

    Args:
        value: A tensor, anything else, or a list, dictionary or data class of these.
        part: Replaces a part.
        plain: Replaces a plain tensor; by default it stays.

    Returns:
        The new arguments.
    """
    if isinstance(value, Part):
        return part(value)
    if isinstance(value, torch.Tensor):
        return value if plain is None else plain(value)
    if isinstance(value, Mapping):
        items = {key: replaced(one, part, plain) for key, one in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return items
        # A subclass of dict, such as one whose keys are also attributes.
        same = copy.copy(value)
        for key, one in items.items():
            same[key] = one
        return same
    if is_record(value):
        record = copy.copy(value)
        vars(record).update({key: replaced(one, part, plain) for key, one in vars(value).items()})
        return record
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        made = [replaced(one, part, plain) for one in value]
        if isinstance(value, list):
            return made
        # PyTorch's own results take a sequence, named tuples one argument for each field.
        if hasattr(value, "n_fields"):
            return type(value)(made)
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


def name_of(function: Function) -> str:
    """The name of an operation.

    Args:
        function: A function, a method or the getter of an attribute.

    Returns:
        The name; for an attribute, with a leading dot.
    """
    name = getattr(function, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        owner = getattr(function, "__self__", None)
        return "." + getattr(owner, "__name__", "") + ("" if name == "__get__" else name)
    return name or repr(function)


def reject(wanted: str, advice: str = "") -> Any:
    """Raises an error: the operation cannot be done on parts.

    Args:
        wanted: What the operation would need.
        advice: What to do instead.
    """
    advice = advice or "call gather() on its input, or write it with operations that have one"
    raise Unsupported(f"expected {wanted}, received none; {advice}")


def global_result_shape(function: Function, x: Part, *args: Any, **kwargs: Any) -> tuple[int, ...]:
    """The shape that an operation would give on the global tensor.

    Args:
        function: The operation.
        x: Its input.
        args: Its other arguments.
        kwargs: Its options.

    Returns:
        The shape.

    Raises:
        UsageError: PyTorch rejects these arguments for the global tensor. A part might fit them by chance.
    """
    whole = global_shape(x)
    try:
        return tuple(function(torch.empty(whole, device="meta"), *args, **kwargs).shape)
    except (RuntimeError, IndexError) as error:
        given = ", ".join([*map(str, args), *(f"{key}={one}" for key, one in kwargs.items())])
        raise UsageError(
            f"{name_of(function)}: expected arguments that suit a tensor of the shape {tuple(whole)}, "
            f"received {given}; the whole's shape counts, and PyTorch says: {error}"
        ) from error


def sequence(value: Any, count: int) -> list[int]:
    """Expands an argument to one number for each dimension.

    Args:
        value: A number, or a sequence of one or `count` numbers.
        count: The number of dimensions.

    Returns:
        The numbers.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        values = [int(one) for one in value]
        return values * count if len(values) == 1 else values
    return [int(value)] * count
