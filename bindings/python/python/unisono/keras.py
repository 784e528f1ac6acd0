"""Keras 3 on any backend: models synchronized between workers, and a callback for `fit`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from unisono.errors import UsageError
from unisono.parameters import ParameterManager

Values = np.ndarray[Any, Any]


class Weights:
    """A model's weights on any backend, trainable and non-trainable."""

    in_place = False

    def __init__(self, model: Any) -> None:
        if not model.built:
            raise UsageError(
                f"parameters: expected a model that is built, received {model.name!r}, which has no weights "
                "so far; begin it with keras.Input, or call model.build(input_shape)"
            )
        self._model = model

    def names(self) -> list[str]:
        """The weights' paths."""
        return [weight.path for weight in self._attached().weights]

    def read(self) -> list[Values]:
        """The current values."""
        return [keras.ops.convert_to_numpy(weight.value) for weight in self._attached().weights]

    def write(self, values: list[Values]) -> None:
        """Copies values into the weights."""
        weights = self._attached().weights
        copies = [value.astype(now.dtype) for value, now in zip(values, self.read(), strict=True)]
        for weight, copy in zip(weights, copies, strict=True):
            weight.assign(copy)

    def _attached(self) -> Any:
        """The model; during `fit` on JAX its weights are held elsewhere until they are requested."""
        if hasattr(self._model, "jax_state_sync"):
            self._model.jax_state_sync()
        return self._model


def parameters_of(model: Any) -> Weights:
    """A model's weights as parameters, for `unisono.ParameterManager`.

    Args:
        model: A Keras model that is built.

    Returns:
        Its parameters.
    """
    return Weights(model)


class SyncCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Syncs a model with the other workers while `fit` trains it.

    Example:
        >>> import keras, unisono as uni, unisono.keras
        >>> world = uni.init()
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> callback = unisono.keras.SyncCallback(model, every=2)
        >>> callback.manager
        <unisono.ParameterManager of 2 parameters, 10 elements, delta, every 2>
    """

    def __init__(self, model: Any, every: int = 1, **options: Any) -> None:
        """Makes the manager, together with all other ranks; the model then has the weights of worker 0.

        Args:
            model: The model on which `fit` is called.
            every: The number of batches between two exchanges.
            options: Other arguments of `unisono.ParameterManager`, such as ``consistency="bsp"``.
        """
        super().__init__()
        self.manager = ParameterManager(model, every=every, **options)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Syncs; `fit` calls it."""
        self.manager.sync()

    def on_train_end(self, logs: Any = None) -> None:
        """Exchanges the remaining changes; `fit` calls it."""
        self.manager.flush()
