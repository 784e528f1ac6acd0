"""The names of updaters and consistencies, so that editors complete them and type checkers find mistakes."""

from typing import Literal

Updater = Literal[
    "add",
    "sgd",
    "momentum",
    "nesterov",
    "adagrad",
    "rmsprop",
    "adam",
    "adamw",
    "adamax",
    "adadelta",
    "lion",
    "ftrl",
    "dcasgd",
    "dcasgda",
    "multiverso_adagrad",
    "multiverso_momentum",
    "default",
    "nesterov_momentum",
    "momentum_sgd",
]
"""The rule by which an add is applied; the last three are other names of "add", "nesterov" and "momentum"."""

# Editors complete the names; a type checker accepts any text.
Consistency = Literal["async", "bsp", "bsp:mean", "average"] | str | tuple[str, int]  # noqa: PYI051
"""How far workers may drift apart; all others take a number, as in "ssp:3" and "bsp:backup=1"."""
