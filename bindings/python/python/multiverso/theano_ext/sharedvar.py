"""Shared variables of PyTensor or Theano, synchronized between workers.

Example:
    >>> import numpy as np
    >>> import multiverso as mv
    >>> from multiverso.theano_ext import sharedvar
    >>> mv.init()
    >>> W = sharedvar.mv_shared(value=np.zeros((2, 2), "float32"), name="W", borrow=True)
    >>> W.set_value(W.get_value() + 1)
    >>> sharedvar.sync_all_mv_shared_vars()
    >>> float(W.get_value()[0, 0])
    1.0
    >>> mv.shutdown()
"""

from __future__ import annotations

from typing import Any

import multiverso as mv
from multiverso.api import session
from unisono.pytensor import SyncedVariable, Values, framework, keep


class MVSharedVariable(SyncedVariable):
    """A shared variable and its table of float32, with the settings of `multiverso.init`.

    Other attributes are delegated to the variable. Pickling omits the table.
    """

    def __init__(self, svobj: Any) -> None:
        """Makes the table with the master's value, which all variables then have.

        Args:
            svobj: A shared variable of PyTensor or Theano.
        """
        super().__init__(svobj)

    def _make_table(self, value: Values, **options: Any) -> Any:
        self._made_in = session()
        return mv.ArrayTableHandler(value.size, init_value=value.ravel())

    def _barrier(self) -> None:
        mv.barrier()

    def _is_over(self) -> bool:
        return self._made_in is None or bool(self._made_in.is_over)


def mv_shared(*args: Any, **options: Any) -> Any:
    """Makes a shared variable synchronized between workers. Every worker makes the same ones, in order.

    Args:
        args: Arguments of ``theano.shared``: `value`, `name`, `borrow` and so on. The master's value is used.
        options: Keyword arguments of ``theano.shared``.

    Returns:
        The shared variable itself, with an additional method `mv_sync`.
    """
    return keep(MVSharedVariable(framework.shared(*args, **options)), mv_shared)


mv_shared.shared_vars = []  # type: ignore[attr-defined]


def sync_all_mv_shared_vars() -> None:
    """Calls `mv_sync` on every variable that `mv_shared` has made, in the order in which they were made."""
    for variable in mv_shared.shared_vars:  # type: ignore[attr-defined]
        variable.mv_sync()
