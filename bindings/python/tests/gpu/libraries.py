"""The array libraries under test: how each copies values to the device and back."""

import numpy as np
from ml_dtypes import bfloat16

TYPES = ["float32", "float64", "float16", bfloat16, "int8", "uint8", "int32", "int64"]


class Torch:
    """PyTorch tensors."""

    name = "torch"
    in_place = True

    def __init__(self):
        import torch

        self.torch = torch

    def put(self, values):
        values = np.array(values, order="C")
        if values.dtype == bfloat16:
            return self.torch.from_numpy(values.view("int16")).cuda().view(self.torch.bfloat16)
        return self.torch.from_numpy(values).cuda()

    def get(self, array):
        assert isinstance(array, self.torch.Tensor) and array.is_cuda, type(array)
        if array.dtype == self.torch.bfloat16:
            return array.view(self.torch.int16).cpu().numpy().view(bfloat16)
        return array.cpu().numpy()


class CuPy:
    """CuPy arrays."""

    name = "cupy"
    in_place = True

    def __init__(self):
        import cupy

        self.cupy = cupy

    def put(self, values):
        return self.cupy.asarray(values)

    def get(self, array):
        assert isinstance(array, self.cupy.ndarray), type(array)
        return self.cupy.asnumpy(array)


class Jax:
    """JAX arrays, which are immutable: only collectives that make new arrays accept them."""

    name = "jax"
    in_place = False

    def __init__(self):
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax = jax

    def put(self, values):
        return self.jax.device_put(values, self.jax.devices("gpu")[0])

    def get(self, array):
        assert isinstance(array, self.jax.Array) and "gpu" in array.device.platform, type(array)
        return np.asarray(array)


def library(name):
    return {"torch": Torch, "cupy": CuPy, "jax": Jax}[name]()
