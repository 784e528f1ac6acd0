"""Plain callables as functions, over NumPy arrays; the PyTorch and JAX adapters convert in- and outputs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable as AnyCallable
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.functions.captures import Captures
from unisono.functions.shared_array import Shared, Updated
from unisono.functions.variables import Registry

_ADAPTERS = {
    "numpy": "unisono.functions.callables",
    "torch": "unisono.functions.with_torch",
    "jax": "unisono.functions.with_jax",
}

FRAMEWORKS = tuple(_ADAPTERS)
"""The libraries whose arrays a callable can take."""


@dataclass
class Callable:
    """The computation of a function, sent to every worker by value."""

    callable: AnyCallable[..., Any]
    framework: str
    shareds: list[Shared]
    outputs: int
    inputs: list[str]
    """The input names, in the order in which calls pass them."""
    parameters: list[str]
    """The same names, in the order of the callable's parameters."""
    positional: list[str]
    """The arguments passed by position; all others are passed by name."""

    def build(self) -> Kernel:
        """Builds the kernel that runs the callable in this process."""
        made: Kernel = importlib.import_module(_ADAPTERS[self.framework]).kernel(self)
        return made


class Kernel:
    """A callable in this process. This class handles NumPy arrays."""

    is_fresh = False
    """Whether the caller owns the outputs exclusively and need not copy them."""

    def __init__(self, definition: Callable) -> None:
        self.definition = definition
        self.shareds = {one.name: one for one in definition.shareds}
        """The shared arrays passed to the callable, by name."""
        self._order = [definition.inputs.index(name) for name in definition.parameters]

    def argument(self, array: Any) -> Any:
        """Converts an input for the callable: read-only, because all ranks share that memory."""
        return _read_only(array)

    def value(self, shared: Shared) -> Any:
        """Converts a shared array for the callable: read-only, as it changes by `updated`, not in place."""
        held = shared.value
        return _read_only(held) if isinstance(held, np.ndarray) else held

    def result(self, value: Any) -> Any:
        """Converts an output to a NumPy array."""
        return np.asarray(value)

    def stored(self, value: Any) -> Any:
        """Converts a shared array's new value to an array that never aliases an input."""
        return np.array(value)

    def call(self, arguments: list[Any], shareds: dict[str, Any]) -> Any:
        """Runs the callable."""
        leading, named = self.bind(arguments, shareds)
        return self.definition.callable(*leading, **named)

    def bind(self, arguments: list[Any], shareds: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Splits the arguments into positional and keyword arguments."""
        definition = self.definition
        return bind(definition.positional, definition.parameters, arguments, shareds)

    def run(self, arguments: list[Any]) -> list[Any]:
        """Computes the outputs and applies the changes of shared arrays that the callable returns."""
        shareds = {name: self.value(one) for name, one in self.shareds.items()}
        result = self.call([self.argument(arguments[at]) for at in self._order], shareds)
        if not isinstance(result, Updated):
            return self._outputs(result)
        unknown = [name for name in result.values if name not in self.shareds]
        if unknown:
            raise ValueError(
                "updated: expected names of shared arrays "
                f"({', '.join(self.shareds) or 'the function has none'}), "
                f"received {unknown[0]!r}; name it in shareds"
            )
        outputs = self._outputs(result.outputs)
        fitted = {
            name: self.shareds[name]._fitted(self.stored(value), "updated")
            for name, value in result.values.items()
        }
        for name, value in fitted.items():
            self.shareds[name].value = value
        return outputs

    def _outputs(self, result: Any) -> list[Any]:
        outputs = [self.result(one) for one in _listed(result)]
        if len(outputs) != self.definition.outputs:
            raise TypeError(
                f"expected {self.definition.outputs} outputs, as declared, received {len(outputs)}; "
                'declare one mode for each, such as outputs=["avg", "gather"]'
            )
        return outputs


def kernel(definition: Callable) -> Kernel:
    """Builds the kernel of a callable for this process."""
    return Kernel(definition)


def bind(
    positional: Sequence[str], inputs: Sequence[str], arguments: Sequence[Any], shareds: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Splits inputs and shared arrays into positional and keyword arguments."""
    named = {**dict(zip(inputs, arguments, strict=True)), **shareds}
    return [named.pop(name) for name in positional], named


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


def _listed(result: Any) -> Sequence[Any]:
    if result is None:
        return []
    return result if isinstance(result, (list, tuple)) else [result]


def framework_of(function: Any, shareds: Sequence[Any]) -> str:
    """Guesses which library's arrays a callable takes, from its type, its shared objects and its captures."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    things = [function, *shareds, *(one.value for one in shareds if isinstance(one, Shared))]
    if torch is not None and any(isinstance(one, (torch.nn.Module, torch.Tensor)) for one in things):
        return "torch"
    if torch is not None:
        used = Captures([function], Registry())
        # A callable that converts arrays to tensors itself takes NumPy arrays.
        if "from_numpy" not in used.names and any(
            isinstance(one, torch.nn.Module) for one in used.shared.values()
        ):
            return "torch"
    if jax is not None and (
        any(isinstance(one, jax.Array) for one in things) or type(function).__name__ == "PjitFunction"
    ):
        return "jax"
    return "numpy"


def check_names(function: Any, argument: str, shareds: Sequence[Any]) -> None:
    """Raises an error for shared arrays without a matching parameter: the callable could not receive them."""
    names = [one.name for one in _parameters(function)]
    for position, one in enumerate(shareds):
        if isinstance(one, Shared) and one.name not in names:
            raise ValueError(
                f"{argument}: expected arrays that the function uses, named like its parameters {names}, "
                f"received {one.name!r} at position {position}"
            )


def _parameters(function: Any) -> list[inspect.Parameter]:
    target = function.forward if hasattr(function, "forward") else function
    return list(inspect.signature(target).parameters.values())


def input_names(function: Any, shareds: Collection[str], wanted: Collection[str] = ()) -> list[str]:
    """The input names of a callable: all parameters except shared arrays and optional ones not requested."""
    names = []
    for parameter in _parameters(function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"function: expected a callable with named parameters, received *{parameter.name}; "
                "wrap it in one that names its inputs"
            )
        if parameter.name in shareds:
            continue
        if parameter.default is parameter.empty or parameter.name in wanted:
            names.append(parameter.name)
    return names


def positional_names(function: Any, inputs: Collection[str], shareds: Collection[str]) -> list[str]:
    """The names of the arguments passed by position: leading inputs, and positional-only parameters.

    Decorators and module hooks may support positional arguments only. Parameters after a shared array, or
    after an optional parameter that keeps its default, are passed by name.
    """
    names = []
    for parameter in _parameters(function):
        is_nameless = parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in shareds
        if parameter.kind is parameter.KEYWORD_ONLY or not (parameter.name in inputs or is_nameless):
            break
        names.append(parameter.name)
    return names
