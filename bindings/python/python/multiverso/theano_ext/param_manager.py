"""A manager that keeps all parameters of a model synchronized between workers.

Example:
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.theano_ext.param_manager import MVModelParamManager
    >>> mv.init()
    >>> weights = [np.zeros(3, "float32")]
    >>> manager = MVModelParamManager(weights)
    >>> weights[0] += 1
    >>> manager.sync_all_param()
    >>> weights[0].tolist()
    [1.0, 1.0, 1.0]
    >>> mv.shutdown()
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

import unisono as uni
from multiverso.api import session
from unisono.parameters import Parameters, recognise
from unisono.parameters.layout import ParameterLayout, agree

Values = np.ndarray[Any, Any]


class MVModelParamManager:
    """Keeps the parameters of a model in one table of float32, with the settings of `multiverso.init`.

    It supports the models that `unisono.ParameterManager` supports. For others, derive a class from it, with
    the methods `get_all_param_values` and `set_all_param_values`.
    """

    def __init__(self, model: Any, is_master_worker: bool | None = None) -> None:
        """Makes the table, together with all other workers; all models then have the master's values.

        Args:
            model: The model.
            is_master_worker: Whether this process provides the initial values: True on one process. By
                default it is worker 0.

        Raises:
            unisono.UsageError: A parameter is not float32, models differ, or there is not exactly one master.
        """
        self.model = model
        self._session = session()
        self._known: Parameters | None = None
        parameters = _Floats(self)
        self._share_first_values(parameters, is_master_worker)
        self._manager = uni.ParameterManager(
            parameters, consistency=self._session.consistency, updater=self._session.updater
        )
        # So that shutdown ends it, too.
        self._session.tables.append(weakref.ref(self._manager.table))

    def get_all_param_values(self) -> list[Values]:
        """The values of all parameters, always in the same order.

        Returns:
            A list of arrays.
        """
        return self._parameters().read()

    def set_all_param_values(self, params: list[Values]) -> None:
        """Replaces the values of all parameters.

        Args:
            params: A list of arrays, in the order of `get_all_param_values`.
        """
        self._parameters().write(params)

    def sync_all_param(self) -> None:
        """Adds this worker's changes since the last sync, and gets the resulting values."""
        if self._session.is_over:
            raise uni.UsageError(
                "sync_all_param: expected a call before shutdown(), received one after it; make a new manager"
            )
        self._manager.sync()

    def update_all_param(self) -> None:
        """The tutorial's name for `sync_all_param`."""
        self.sync_all_param()

    def _parameters(self) -> Parameters:
        if self._known is None:
            self._known = recognise(self.model)
        return self._known

    def _names(self) -> list[str]:
        if type(self).get_all_param_values is MVModelParamManager.get_all_param_values:
            return self._parameters().names()
        return [str(place) for place in range(len(self.get_all_param_values()))]

    def _share_first_values(self, parameters: Parameters, is_master: bool | None) -> None:
        """Broadcasts the master's values if it is not worker 0, whose values become the initial ones."""
        world = self._session.world
        number = -1 if world.worker_id is None else world.worker_id
        said = world.all_gather(np.array([-1 if is_master is None else int(is_master), number]))
        masters = np.flatnonzero(said[:, 0] == 1).tolist()
        if (said[:, 0] == -1).all():
            return
        if len(masters) != 1:
            raise uni.UsageError(
                "parameters: expected is_master_worker to be true on one process, received "
                f"{len(masters)} of them: {masters}; pass multiverso.is_master_worker()"
            )
        if said[masters[0], 1] != 0:
            agree(lambda: ParameterLayout.of(parameters), world)
            values = [np.array(value) for value in parameters.read()]
            for value in values:
                world.broadcast(value, masters[0])
            parameters.write(values)


# Its name in older versions.
MVNetParamManager = MVModelParamManager


class _Floats:
    """The parameters of a manager, read and written with its own methods."""

    in_place = False

    def __init__(self, manager: MVModelParamManager) -> None:
        self._manager = manager

    def names(self) -> list[str]:
        return self._manager._names()

    def read(self) -> list[Values]:
        values = [np.asarray(value) for value in self._manager.get_all_param_values()]
        for name, value in zip(self.names(), values, strict=True):
            if value.dtype != np.float32:
                raise uni.UsageError(
                    f"parameters: expected parameters of type float32, received {name!r} of type "
                    f"{value.dtype}; set floatX=float32, or use unisono.ParameterManager"
                )
        return values

    def write(self, values: list[Values]) -> None:
        self._manager.set_all_param_values([value.astype(np.float32) for value in values])
