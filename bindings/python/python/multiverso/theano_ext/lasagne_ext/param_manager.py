"""A manager for the parameters of a Lasagne network."""

from __future__ import annotations

from multiverso.theano_ext.param_manager import MVModelParamManager
from unisono.lasagne import parameters_of
from unisono.parameters import Parameters


class LasagneParamManager(MVModelParamManager):
    """Keeps the parameters of a network synchronized between workers.

    The network is its output layer, a list of them, or an object with the methods `get_all_param_values` and
    `set_all_param_values`.
    """

    def _parameters(self) -> Parameters:
        if self._known is None:
            self._known = parameters_of(self.model)
        return self._known


# The tutorial's name.
MVNetParamManager = LasagneParamManager
