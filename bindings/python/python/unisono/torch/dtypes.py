"""The element types that collectives take as they are."""

import torch

SUPPORTED_DTYPES = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
    }
)
"""The element types of the library. Tensors of other types are moved as bytes."""
