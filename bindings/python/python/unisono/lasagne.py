"""Lasagne: networks synchronized between workers."""

from __future__ import annotations

import sys
from typing import Any

from unisono.errors import UsageError
from unisono.parameters.adapter import Callables, Parameters


def parameters_of(network: Any) -> Parameters:
    """All parameters of a network, for `unisono.ParameterManager`, including those that are not trained.

    Args:
        network: The output layer of a network or a list of them; or a custom object with the methods
            `get_all_param_values` and `set_all_param_values`.

    Returns:
        Its parameters.
    """
    if hasattr(network, "get_all_param_values") and hasattr(network, "set_all_param_values"):
        return Callables(network.get_all_param_values, network.set_all_param_values)
    lasagne = sys.modules.get("lasagne")
    if lasagne is None:
        raise UsageError(
            "parameters: expected a Lasagne network, received "
            f"{type(network).__name__}, and Lasagne is not imported; pass its output layer"
        )
    from unisono.pytensor import parameters_of as shared_variables

    return shared_variables(lasagne.layers.get_all_params(network))
