"""A callback that keeps a Keras model synchronized between workers while `fit` trains it."""

from __future__ import annotations

from typing import Any

import keras

from multiverso.theano_ext.keras_ext.param_manager import KerasParamManager


class MVCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Syncs all weights once in every `freq` batches.

    Example:
        >>> import keras, multiverso as mv
        >>> from multiverso.theano_ext.keras_ext.callbacks import MVCallback
        >>> mv.init()
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        >>> callback = MVCallback(model, freq=2)  # model.fit(x, y, callbacks=[callback])
        >>> mv.shutdown()
    """

    def __init__(self, model: Any, freq: int = 1) -> None:
        """Makes the table, together with all other workers; all models then have the master's weights.

        Args:
            model: The model on which `fit` is called.
            freq: The number of batches between two syncs.

        Raises:
            ValueError: `freq` is not positive.
        """
        super().__init__()
        if freq <= 0:
            raise ValueError(
                f"MVCallback: expected a freq of 1 or more, received {freq}; count batches from 1"
            )
        self.kpm = KerasParamManager(model)
        self.freq = freq
        self.cur_n = 0

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts batches and syncs; `fit` calls it."""
        self.cur_n += 1
        if self.cur_n % self.freq == 0:
            self.kpm.sync_all_param()
