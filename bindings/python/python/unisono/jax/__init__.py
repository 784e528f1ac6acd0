"""JAX and Flax: pytrees synchronized between workers, and collectives on arrays, inside `jit` and outside.

Example:
    >>> import jax.numpy as jnp
    >>> import unisono as uni
    >>> import unisono.jax as unijax
    >>> world = uni.init()
    >>> unijax.all_reduce({"w": jnp.ones(2), "b": jnp.zeros(1)}, op="avg")
    {'b': Array([0.], dtype=float32), 'w': Array([1., 1.], dtype=float32)}
"""

from unisono.jax.collectives import all_gather, all_reduce, barrier, broadcast, jit, reduce_scatter
from unisono.jax.parameters import ParameterManager, Tree, parameters_of

__all__ = [
    "ParameterManager",
    "Tree",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "jit",
    "parameters_of",
    "reduce_scatter",
]
