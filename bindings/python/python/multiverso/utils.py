"""Conversion of data to float32, the type of the tables."""

from __future__ import annotations

from typing import Any

import numpy as np


def convert_data(data: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Copies numbers into a NumPy array of float32.

    Args:
        data: An array, a tensor in host memory, a list or a number.

    Returns:
        A new array of the same shape.

    Example:
        >>> from multiverso.utils import convert_data
        >>> convert_data([1, 2])
        array([1., 2.], dtype=float32)
    """
    if hasattr(data, "detach"):  # a PyTorch tensor
        data = data.detach().float().numpy()
    return np.array(data, dtype=np.float32)
