"""JAX arrays and pytrees: collectives inside jit and outside against NumPy, and managers of trees."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import unisono as uni
import unisono.jax as unijax
from note import note

world = uni.init()
OPS = {"sum": np.sum, "avg": np.mean, "min": np.min, "max": np.max, "prod": np.prod}


def of_rank(rank, shape, dtype="float32"):
    return np.random.RandomState(100 + rank).randint(1, 5, shape).astype(dtype)


def of_all_ranks(shape, dtype="float32"):
    return np.stack([of_rank(rank, shape, dtype) for rank in range(world.size)])


def rejected(text, call, *args, **options):
    try:
        call(*args, **options)
    except uni.UsageError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error about {text!r}")


def both(function, *args):
    """A function's result outside jit; inside it must be the same."""
    outside, inside = function(*args), unijax.jit(function)(*args)
    jax.tree.map(np.testing.assert_array_equal, outside, inside)
    return outside


def test_collectives():
    for shape in ((), (7,), (0,), (5, 3)):
        mine, all_of_them = jnp.array(of_rank(world.rank, shape)), of_all_ranks(shape)
        for op, reduce in OPS.items() if shape == (5, 3) else [("sum", np.sum)]:
            result = both(lambda x, op=op: unijax.all_reduce(x, op), mine)
            assert isinstance(result, jax.Array) and result.dtype == mine.dtype
            np.testing.assert_allclose(result, reduce(all_of_them, axis=0), rtol=1e-6)
        np.testing.assert_array_equal(both(unijax.all_gather, mine), all_of_them)
        from_last = both(lambda x: unijax.broadcast(x, world.size - 1), mine)
        np.testing.assert_array_equal(from_last, all_of_them[-1])
        if shape:
            share = np.array_split(all_of_them.sum(0), world.size)[world.rank]
            np.testing.assert_array_equal(both(unijax.reduce_scatter, mine), share)
    assert (np.array(mine) == of_rank(world.rank, shape)).all()  # nothing is changed in place


def test_trees():
    tree = {"a": jnp.ones(3), "b": [jnp.full((2, 2), world.rank, jnp.int32), jnp.ones((), jnp.bfloat16)]}
    result = both(unijax.all_reduce, tree)
    assert (result["a"] == world.size).all() and result["b"][1] == world.size
    assert (result["b"][0] == sum(range(world.size))).all() and result["b"][1].dtype == jnp.bfloat16
    assert isinstance(unijax.all_reduce({"n": np.ones(2)})["n"], np.ndarray)


def test_order():
    """Calls inside and outside keep their order, even if the program does not wait for a jitted one."""

    @jax.jit
    def inside(x):
        y = unijax.all_reduce(x)
        return unijax.all_reduce(y * y, "max")

    for step in range(5):
        x = inside(jnp.full(1000, 1.0 + step))
        y = unijax.all_gather(jnp.array([world.rank]))
        unijax.barrier()
        assert y.ravel().tolist() == list(range(world.size))
        assert (x == ((1 + step) * world.size) ** 2).all()


def test_a_step_of_training():
    """Half batches with averaged gradients give what one worker gets with full batches."""
    x, y = np.random.RandomState(1).rand(2, 12 * world.size, 3).astype("float32")
    mine = slice(world.rank, None, world.size)

    def loss(w, x, y):
        return jnp.mean((x @ w - y) ** 2)

    whole = jax.jit(lambda w: w - 0.1 * jax.grad(loss)(w, x, y))
    part = unijax.jit(lambda w: w - 0.1 * unijax.all_reduce(jax.grad(loss)(w, x[mine], y[mine]), "avg"))
    one, many = jnp.zeros((3, 3)), jnp.zeros((3, 3))
    for _ in range(10):
        one, many = whole(one), part(many)
    np.testing.assert_allclose(one, many, atol=1e-5)


def test_gradients():
    """Gradients are those of the sum of all ranks' functions, computed here in one process."""
    n, rank = world.size, world.rank
    weights = jnp.arange(1.0, n + 1)
    xs = jnp.array(of_all_ranks((3,)))

    def compare(mine, all_of_them):
        """`mine` is a rank's loss; `all_of_them` is the sum over all ranks, as a function of all inputs."""
        expected = jax.grad(all_of_them)(xs)[rank]
        for wrap in (lambda plain: plain, unijax.jit, jax.jit):
            np.testing.assert_allclose(wrap(jax.grad(mine))(xs[rank]), expected, rtol=1e-5)

    def of_sum(total, rank):
        return weights[rank] * (total**3).sum()

    for op, reduce in (("sum", jnp.sum), ("avg", jnp.mean)):
        compare(
            lambda x, op=op: of_sum(unijax.all_reduce(jnp.sin(x), op), rank),
            lambda xs, reduce=reduce: sum(of_sum(reduce(jnp.sin(xs), axis=0), one) for one in range(n)),
        )
    compare(
        lambda x: of_sum(unijax.broadcast(jnp.sin(x), n - 1), rank),
        lambda xs: sum(of_sum(jnp.sin(xs[n - 1]), one) for one in range(n)),
    )
    compare(
        lambda x: of_sum(weights @ unijax.all_gather(jnp.sin(x)), rank),
        lambda xs: sum(of_sum(weights @ jnp.sin(xs), one) for one in range(n)),
    )
    # Trees that include integers, and a loop.
    compare(
        lambda x: of_sum(unijax.all_reduce({"x": x, "count": jnp.ones((), jnp.int32)})["x"], rank),
        lambda xs: sum(of_sum(xs.sum(axis=0), one) for one in range(n)),
    )
    compare(
        lambda x: of_sum(jax.lax.scan(lambda x, _: (unijax.all_reduce(x, "avg"), 0), x, length=2)[0], rank),
        lambda xs: sum(of_sum(xs.mean(axis=0), one) for one in range(n)),
    )

    # Mapped, and mapped gradients.
    rows = jnp.stack([xs[rank], 2 * xs[rank]])
    mapped = unijax.jit(jax.vmap(unijax.all_reduce))(rows)
    np.testing.assert_allclose(mapped, jnp.stack([xs.sum(0), 2 * xs.sum(0)]))
    gradient = jax.grad(lambda x: (unijax.all_reduce(x) ** 2).sum())
    np.testing.assert_allclose(unijax.jit(jax.vmap(gradient))(rows), 2 * n * mapped)

    rejected("op sum or avg", jax.grad(lambda x: unijax.all_reduce(x, "max").sum()), xs[rank])
    rejected("grad does not go through", jax.grad(lambda x: unijax.reduce_scatter(x).sum()), xs[rank])
    rejected("outside vmap", jax.vmap(unijax.all_gather), rows)
    assert (unijax.all_reduce(jnp.ones(2)) == n).all()


def test_errors():
    """An invalid call is Unisono's error inside jit too, and later calls work."""
    for wrap in (lambda plain: plain, unijax.jit):
        rejected("op", wrap(lambda x: unijax.all_reduce(x, "median")), jnp.ones(3))
        if world.size > 1:
            wrong = jnp.ones(3 + (world.rank == 1))
            rejected("all_reduce", wrap(unijax.all_reduce), wrong)
            world.barrier()
    try:
        jax.block_until_ready(jax.jit(lambda x: unijax.all_reduce(x, "median"))(jnp.ones(3)))
    except jax.errors.JaxRuntimeError as error:
        assert "median" in str(error)
    assert (unijax.all_reduce(jnp.ones(2)) == world.size).all()


def test_managers():
    def tree(value):
        return {"dense": {"w": jnp.full((2, 3), value, "float32"), "b": jnp.full(3, value, "bfloat16")}}

    manager = unijax.ParameterManager(tree(world.rank), consistency="bsp")
    params = manager.model
    jax.tree.map(np.testing.assert_array_equal, params, tree(0))
    for step in range(3):
        params = jax.tree.map(lambda x: x + 1, params)
        params = manager.sync(params)
        jax.tree.map(np.testing.assert_array_equal, params, tree((step + 1) * world.size))
    assert params["dense"]["b"].dtype == jnp.bfloat16
    assert manager.flush(params) is manager.model

    holder = uni.ParameterManager(tree(world.rank), mode="average", every=2)
    assert holder.sync(tree(world.rank)) is False
    assert holder.sync(tree(world.rank)) is True
    expected = sum(range(world.size)) / world.size
    np.testing.assert_allclose(holder.model["dense"]["w"], np.full((2, 3), expected), rtol=1e-6)
    held = manager.model
    rejected("structure", manager.sync, {"dense": jnp.ones(3)})
    rejected(
        "of shape (2, 3)", manager.sync, {"dense": {"w": jnp.ones((2, 2)), "b": jnp.ones(3, "bfloat16")}}
    )
    rejected("which is a float", manager.sync, {"dense": {"w": 1.0, "b": jnp.ones(3, "bfloat16")}})
    assert manager.model is held
    jax.tree.map(np.testing.assert_array_equal, manager.sync(), held)
    rejected("of type int32", unijax.ParameterManager, {"step": jnp.zeros(1, jnp.int32)})
    rejected("received 'rate'", unijax.ParameterManager, {"rate": 0.1, "w": jnp.ones(2)})
    return manager


def test_numbers():
    """Python numbers are arrays without axes; other objects are rejected before the call."""
    tree = {"a": jnp.ones(3), "n": 2.0, "i": 3, "s": np.float32(4)}
    total = unijax.all_reduce(tree)
    expected = {"a": np.ones(3), "n": 2.0, "i": 3, "s": 4.0}
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, np.asarray(y) * world.size), total, expected)
    assert isinstance(total["n"], jax.Array) and total["i"].dtype == jnp.int32
    assert unijax.all_gather(1.5).shape == (world.size,)
    inside = jax.jit(lambda x: unijax.all_reduce({"x": x, "n": 1.0}))(jnp.ones(2))
    np.testing.assert_allclose(inside["n"], world.size)
    rejected("received a str", unijax.all_reduce, {"name": "text"})


def test_flax():
    import flax.linen as linen
    import optax
    from flax import nnx
    from flax.training.train_state import TrainState

    layer = linen.Dense(3)
    variables = layer.init(jax.random.key(world.rank), jnp.ones((1, 2)))
    state = TrainState.create(apply_fn=layer.apply, params=variables["params"], tx=optax.adam(0.1))
    manager = unijax.ParameterManager(state, consistency="bsp")
    first = layer.init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    state = manager.model
    jax.tree.map(np.testing.assert_array_equal, state.params, first)
    state = state.replace(params=jax.tree.map(lambda x: x + 1, state.params))
    state = manager.sync(state)
    assert isinstance(state, TrainState)
    expected = jax.tree.map(lambda x: x + world.size, first)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), state.params, expected)

    module = nnx.Linear(2, 3, rngs=nnx.Rngs(world.rank))
    manager = uni.ParameterManager(module, consistency="bsp")
    first = nnx.Linear(2, 3, rngs=nnx.Rngs(0)).kernel[...]
    np.testing.assert_array_equal(module.kernel[...], first)
    module.kernel[...] = module.kernel[...] + 1
    manager.sync()  # the module itself is changed
    np.testing.assert_allclose(module.kernel[...], first + world.size, rtol=1e-5)


test_collectives()
test_trees()
test_order()
test_a_step_of_training()
test_gradients()
test_errors()
test_numbers()
manager = test_managers()
if "flax" in sys.argv:
    test_flax()
uni.shutdown()
rejected("before shutdown()", manager.sync)
note(world.rank, "passed")
