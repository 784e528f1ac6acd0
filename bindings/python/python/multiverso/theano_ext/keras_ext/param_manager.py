"""A manager for the weights of a Keras model."""

from __future__ import annotations

from multiverso.theano_ext.param_manager import MVModelParamManager
from unisono.parameters import Parameters


class KerasParamManager(MVModelParamManager):
    """Keeps the weights of a Keras 3 model synchronized between workers, on any backend."""

    def _parameters(self) -> Parameters:
        if self._known is None:
            from unisono.keras import parameters_of

            self._known = parameters_of(self.model)
        return self._known
