"""Update rules on flat gradients, under Synkhronos' names."""

from unisono.functions.updates import (
    adadelta,
    adagrad,
    adam,
    adamax,
    apply_momentum,
    apply_nesterov_momentum,
    flat_unflat_grads,
    flatten_vars,
    momentum,
    nesterov_momentum,
    nonflat_grads,
    rmsprop,
    sgd,
    sgd_nonflat,
    unflatten_vars,
    vars_flat_size,
)

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "apply_momentum",
    "apply_nesterov_momentum",
    "flat_unflat_grads",
    "flatten_vars",
    "momentum",
    "nesterov_momentum",
    "nonflat_grads",
    "rmsprop",
    "sgd",
    "sgd_nonflat",
    "unflatten_vars",
    "vars_flat_size",
]
