"""JAX arrays on CUDA devices: pytrees between workers, not staged in host memory outside jit."""

import jax
import jax.numpy as jnp
import numpy as np

import unisono as uni
import unisono.jax as unijax

world = uni.init()
rank, size = world.rank, world.size
tree = {"w": jnp.arange(6.0).reshape(2, 3) + rank, "b": jnp.ones(3) * rank, "n": jnp.array([rank])}

total = unijax.all_reduce(tree)
first = sum(range(size))
np.testing.assert_array_equal(total["w"], np.arange(6.0).reshape(2, 3) * size + first)
np.testing.assert_array_equal(total["n"], [first])
assert all(leaf.device.platform == "gpu" for leaf in jax.tree_util.tree_leaves(total))
np.testing.assert_array_equal(tree["b"], np.ones(3) * rank)  # inputs are immutable

alone = unijax.all_reduce(jnp.ones(4))
np.testing.assert_array_equal(alone, np.full(4, size))
np.testing.assert_array_equal(unijax.broadcast(tree, root=size - 1)["b"], np.ones(3) * (size - 1))
np.testing.assert_array_equal(unijax.all_gather(tree["n"]), [[one] for one in range(size)])
np.testing.assert_array_equal(unijax.reduce_scatter(jnp.ones((size, 2))), [[size, size]])

# Inside jit the arrays are staged in host memory, with the same results.
step = unijax.jit(lambda x: unijax.all_reduce(x * 2, op="avg"))
np.testing.assert_array_equal(step(jnp.ones(2)), [2.0, 2.0])

manager = unijax.ParameterManager({"w": jnp.zeros(3) + rank}, mode="average")
params = manager.sync({"w": jnp.ones(3) * rank})
np.testing.assert_allclose(params["w"], np.full(3, first / size))
manager = unijax.ParameterManager({"w": jnp.zeros(3)})
world.barrier()
manager.sync({"w": manager.model["w"] + 1})
world.barrier()
np.testing.assert_allclose(manager.sync()["w"], np.full(3, size))
world.barrier()
if rank == 0:
    print(f"pytrees on {size} workers")
