"""The functions of the demonstrations, for each library: products, and sums over inputs and shared data."""

import numpy as np

from unisono import functions


class Numpy:
    """Callables over NumPy."""

    framework = "numpy"

    def options(self):
        return {"framework": self.framework}

    def shared(self, value, name):
        return functions.shared(value, name)

    def products(self, **options):
        """Returns the mean, the sum and the largest row of x @ y."""

        def products(x, y):
            z = x @ y
            return z.mean(axis=0), z.sum(axis=0), z.max(axis=0)

        modes = ["avg", "sum", "max"]
        return functions.function(products, modes, bcast_inputs=["y"], **self.options(), **options)

    def weighed_rows(self):
        """Returns the sum over rows of x * w."""

        def weighed(x, w):
            return (x * w).sum(axis=0)

        return functions.function(weighed, "sum", **self.options())

    def data_sum(self, x, y):
        """Returns the sum over rows of x @ y, both shared, x in parts."""

        def total(x, y):
            return (x @ y).sum(axis=0)

        return functions.function(total, "sum", sliceable_shareds=[x], shareds=[y], **self.options())


class Torch(Numpy):
    """Callables over PyTorch tensors."""

    framework = "torch"

    def products(self, **options):
        def products(x, y):
            z = x @ y
            return z.mean(dim=0), z.sum(dim=0), z.max(dim=0).values

        modes = ["avg", "sum", "max"]
        return functions.function(products, modes, bcast_inputs=["y"], **self.options(), **options)


class Jax(Numpy):
    """Callables that JAX compiles."""

    framework = "jax"


class Pytensor(Numpy):
    """PyTensor graphs."""

    def shared(self, value, name):
        import pytensor

        return pytensor.shared(value, name)

    def products(self, **options):
        import pytensor.tensor as pt

        x, y = pt.fmatrix("x"), pt.fmatrix("y")
        z = x @ y
        modes = [z.mean(axis=0), (z.sum(axis=0), "sum"), (z.max(axis=0), "max")]
        return functions.function([x], modes, bcast_inputs=[y], **options)

    def weighed_rows(self):
        import pytensor.tensor as pt

        x, w = pt.fmatrix("x"), pt.fmatrix("w")
        return functions.function([x, w], ((x * w).sum(axis=0), "sum"))

    def data_sum(self, x, y):
        return functions.function([], ((x @ y).sum(axis=0), "sum"), sliceable_shareds=[x])


def rows(*shape, seed=0):
    """Returns small integers as floats, whose sums are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")
