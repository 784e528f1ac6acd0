"""Initial values of a table."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

from unisono.errors import UsageError


@dataclass(frozen=True)
class Uniform:
    """Uniformly distributed initial values; see `uniform`."""

    low: float
    high: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check("uniform", self.seed, self.low, self.high)
        if self.low > self.high:
            raise UsageError(
                f"uniform: expected low up to high, received {self.low} and {self.high}; exchange them"
            )


@dataclass(frozen=True)
class Normal:
    """Normally distributed initial values; see `normal`."""

    mean: float
    deviation: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check("normal", self.seed, self.mean, self.deviation)
        if self.deviation < 0:
            raise UsageError(
                f"normal: expected a deviation of 0 or more, received {self.deviation}; leave out its sign"
            )


def uniform(low: float, high: float, seed: int = 0) -> Uniform:
    """Uniformly distributed initial values for a table. Each server generates those of its own part.

    Args:
        low: The lower bound.
        high: The upper bound, exclusive.
        seed: Equal seeds give equal tables, on any number of ranks.

    Returns:
        A value for the argument `init` of a table; pass the same on every rank.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> table = uni.MatrixTable(100, 50, init=uni.uniform(-0.01, 0.01, seed=1))
        >>> bool((abs(table.get()) <= 0.01).all())
        True
    """
    return Uniform(low, high, seed)


def normal(mean: float, deviation: float, seed: int = 0) -> Normal:
    """Normally distributed initial values for a table. Each server generates those of its own part.

    Args:
        mean: The mean.
        deviation: The standard deviation.
        seed: Equal seeds give equal tables, on any number of ranks.

    Returns:
        A value for the argument `init` of a table; pass the same on every rank.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> table = uni.ArrayTable(10_000, init=uni.normal(5, 0.1))
        >>> round(float(table.get().mean()), 1)
        5.0
    """
    return Normal(mean, deviation, seed)


def _check(name: str, seed: int, *bounds: float) -> None:
    if not all(math.isfinite(number) for number in bounds):
        raise UsageError(
            f"{name}: expected finite numbers, received {bounds}; look at how they were computed"
        )
    if not isinstance(seed, numbers.Integral) or not 0 <= int(seed) < 2**64:
        raise UsageError(
            f"{name}: expected a whole seed from 0 to 2**64 - 1, received {seed}; choose another"
        )
