"""PyTorch: models whose gradients or parameters workers share.

Example:
    >>> import torch, unisono as uni
    >>> import unisono.torch
    >>> world = uni.init()
    >>> model = torch.nn.Linear(3, 1)
    >>> unisono.torch.broadcast_parameters(model)
    >>> model(torch.ones(2, 3)).sum().backward()
    >>> unisono.torch.average_gradients(model)
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("unisono.torch needs PyTorch: pip install torch") from error

from unisono.torch.broadcast import broadcast_parameters
from unisono.torch.gradients import average_gradients
from unisono.torch.parallel import DistributedDataParallel
from unisono.torch.parameters import ModuleParameters, parameters_of
from unisono.torch.region_dataset import RegionDataset
from unisono.torch.sampler import DistributedSampler
from unisono.torch.spatial_sampler import SpatialSampler

__all__ = [
    "DistributedDataParallel",
    "DistributedSampler",
    "ModuleParameters",
    "RegionDataset",
    "SpatialSampler",
    "average_gradients",
    "broadcast_parameters",
    "parameters_of",
]
