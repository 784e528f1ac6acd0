"""Maps a model to its parameters, without importing a framework that the program does not use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.parameters.adapter import Arrays, Parameters

# The package of a type, and the module here that handles it. The first match wins: a Keras model on PyTorch
# is also a PyTorch module.
FRAMEWORKS = {
    "keras": "unisono.keras",
    "torch": "unisono.torch",
    "lasagne": "unisono.lasagne",
    "pytensor": "unisono.pytensor",
    "aesara": "unisono.pytensor",
    "theano": "unisono.pytensor",
    "jax": "unisono.jax",
    "jaxlib": "unisono.jax",
    "flax": "unisono.jax",
}

_KNOWN = (
    "a PyTorch module, a Keras model, a pytree of JAX arrays or a Flax module, a list of PyTensor shared "
    "variables, a Lasagne network, or a list or dictionary of NumPy arrays"
)


def recognise(model: Any) -> Parameters:
    """Selects the adapter for a model.

    Args:
        model: A model of a known framework, a container of its arrays, or an object that already is a
            `Parameters`.

    Returns:
        Its parameters.

    Raises:
        UsageError: No adapter recognises it.

    Example:
        >>> import numpy as np
        >>> recognise({"weights": np.zeros((2, 2))}).names()
        ['weights']
    """
    if isinstance(model, Parameters):
        return model
    leaves = list(_leaves(model))
    for name in FRAMEWORKS:
        if any(name in _origins(leaf) for leaf in leaves):
            module = importlib.import_module(FRAMEWORKS[name])
            parameters: Parameters = module.parameters_of(model)
            return parameters
    if isinstance(model, (list, tuple)) and leaves and all(isinstance(one, np.ndarray) for one in model):
        return Arrays(model)
    if isinstance(model, Mapping) and leaves and all(isinstance(one, np.ndarray) for one in model.values()):
        return Arrays(model)
    raise UsageError(
        f"parameters: expected {_KNOWN}, received {_describe(model)}; for anything else pass two functions: "
        "ParameterManager(get=lambda: [arrays], set=lambda arrays: ...)"
    )


def _leaves(model: Any) -> Iterator[Any]:
    """The leaves of nested containers, or the model itself."""
    if isinstance(model, Mapping):
        model = list(model.values())
    if isinstance(model, (list, tuple)):
        for one in model:
            yield from _leaves(one)
    else:
        yield model


def _origins(one: Any) -> set[str]:
    """The packages of a value's type and its base classes."""
    return {kind.__module__.partition(".")[0] for kind in type(one).__mro__}


def _describe(model: Any) -> str:
    if isinstance(model, (list, tuple, Mapping)):
        kinds = sorted({type(leaf).__name__ for leaf in _leaves(model)})
        return f"a {type(model).__name__} of {', '.join(kinds) or 'nothing'}"
    return f"a {type(model).__module__}.{type(model).__qualname__}"
