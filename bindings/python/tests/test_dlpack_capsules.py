"""Malformed DLPack capsules: each is used as NumPy would use it, or rejected; never a crash."""

import ctypes
import os
import random

import numpy as np

import unisono as uni

BYTES = 4096
FLOAT, INT, BOOL, CPU = 2, 0, 6, 1
NAMES = {b"dltensor": 0, b"dltensor_versioned": 1}


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Plain(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("delete", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("delete", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Lender:
    """Exports a buffer with a description that need not be true."""

    def __init__(self, chance: random.Random) -> None:
        def often(usual, *others):
            return usual if chance.random() < 0.8 else chance.choice(others)

        self.buffer = (ctypes.c_uint8 * BYTES)()
        self.name = often(b"dltensor", b"dltensor_versioned", b"used_dltensor", b"else")
        self.device = often((CPU, 0), (2, 0), (0, 0), (-1, 7), (1, 99))
        held = Versioned() if self.name == b"dltensor_versioned" else Plain()
        if isinstance(held, Versioned):
            held.version[:] = often([1, 0], [2, 0], [0, 0], [1, 99])
            held.flags = often(0, 1, 2, 2**64 - 1)
        tensor = held.tensor
        start = ctypes.addressof(self.buffer)
        tensor.data = often(start, 0, start + 1)
        tensor.device_kind, tensor.device_id = often(self.device, (2, 0))
        tensor.dimensions = often(chance.randint(0, 4), -1, 2**31 - 1, -(2**31))
        tensor.code, tensor.bits = often((FLOAT, 32), (INT, 64), (INT, 8), (3, 128), (BOOL, 8), (FLOAT, 33))
        tensor.lanes = often(1, 0, 4, 65535)
        tensor.byte_offset = often(0, 8, 2**63, 2**64 - 1)
        count = min(max(tensor.dimensions, 0), 4)
        # The size of the buffer is not known: beyond it, only sizes that no memory has are drawn.
        sizes = [often(chance.randint(0, 4), 1, -1, -(2**63), 2**62) for _ in range(count)]
        strides = [often(1, 0, 4, -1, 2**62, -(2**63)) for _ in range(count)]
        dense = all(0 <= size <= 4 for size in sizes)
        if dense and chance.random() < 0.6:
            strides = [1] * count
            for at in range(count - 2, -1, -1):
                strides[at] = strides[at + 1] * max(sizes[at + 1], 1)
        self.sizes, self.steps = (ctypes.c_int64 * 5)(*sizes), (ctypes.c_int64 * 5)(*strides)
        pointer = ctypes.POINTER(ctypes.c_int64)
        tensor.shape = ctypes.cast(self.sizes, pointer) if often(True, False) else pointer()
        tensor.strides = ctypes.cast(self.steps, pointer) if chance.random() < 0.5 else pointer()
        self.held, self.tensor, self.facts = held, tensor, (sizes, strides)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return new_capsule(ctypes.addressof(self.held), self.name, None)


def may_be_used(lender: Lender) -> bool:
    """Whether the description refers to memory inside the buffer."""
    tensor, (sizes, strides) = lender.tensor, lender.facts
    honest = (
        lender.name in NAMES
        and (tensor.device_kind, lender.device[0]) == (CPU, CPU)
        and 0 <= tensor.dimensions <= 4
        and bool(tensor.shape) | (tensor.dimensions == 0)
        and tensor.lanes == 1
        and (tensor.code, tensor.bits) in [(FLOAT, 32), (INT, 64), (INT, 8), (BOOL, 8)]
        and tensor.byte_offset <= 8
        and all(size >= 0 for size in sizes)
    )
    if 0 in sizes:
        return honest
    far = [step for size, step in zip(sizes, strides, strict=True) if size > 1 and abs(step) > 64]
    dense = not tensor.strides or not far
    return honest and dense and all(size <= 4 for size in sizes)


def test_malformed_capsules():
    uni.init()
    seed = int(os.environ.get("UNISONO_SEED", 1))
    chance = random.Random(seed)
    used = 0
    for turn in range(int(os.environ.get("UNISONO_FUZZ", 3000))):
        lender = Lender(chance)
        case = f"seed {seed}, turn {turn}"
        try:
            if chance.random() < 0.5:
                uni.all_reduce(lender)
            else:
                gathered = uni.all_gather(lender)
                assert isinstance(gathered, np.ndarray), case
        except (uni.Error, TypeError, BufferError, ValueError):
            continue
        assert may_be_used(lender), f"{case}: accepted {lender.facts}, {lender.tensor.dimensions} dimensions"
        used += 1
    assert used > 10, f"seed {seed}: hardly any capsule was used"
