"""JAX: functions that each worker compiles with `jax.jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono.functions.callables import Callable, Kernel
from unisono.functions.shared_array import Updated


class JaxKernel(Kernel):
    """A callable that is traced once for each shape."""

    def __init__(self, definition: Callable) -> None:
        super().__init__(definition)

        def traced(*arguments: Any, **shareds: Any) -> Any:
            result = definition.callable(*arguments, **shareds)
            # Changes are returned beside the outputs: a compiled function returns only arrays.
            return (result.outputs, result.values) if isinstance(result, Updated) else (result, {})

        self._compiled = jax.jit(traced)

    def argument(self, array: Any) -> Any:
        """Copies an input: JAX may keep a reference to it, and the memory of inputs changes between calls."""
        return jnp.array(array)

    def call(self, arguments: list[Any], shareds: dict[str, Any]) -> Any:
        """Runs the compiled function."""
        # The master may change inputs and variables as soon as this returns.
        ready: Any = jax.block_until_ready
        leading, named = self.bind(arguments, shareds)
        outputs, values = ready(self._compiled(*leading, **named))
        return Updated(outputs, values) if values else outputs

    def stored(self, value: Any) -> Any:
        """Leaves a shared array's new value in JAX's memory."""
        return value

    def result(self, value: Any) -> Any:
        """Converts an output to a NumPy array, once it is computed."""
        return np.asarray(value)


def kernel(definition: Callable) -> Kernel:
    """Builds the kernel of a callable for this process."""
    return JaxKernel(definition)
