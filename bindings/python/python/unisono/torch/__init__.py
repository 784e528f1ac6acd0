"""PyTorch: data-parallel gradients, shared parameters and spatially partitioned models.

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

from typing import TYPE_CHECKING, Any

from unisono.torch.broadcast import broadcast_parameters
from unisono.torch.distributed import register_in_older_versions
from unisono.torch.embedding import Embedding, EmbeddingBag
from unisono.torch.gradients import average_gradients
from unisono.torch.parallel import DistributedDataParallel
from unisono.torch.parameters import ModuleParameters, parameters_of
from unisono.torch.sampler import DistributedSampler

register_in_older_versions()

if TYPE_CHECKING:
    from unisono.torch.space.exchange import halo_exchange
    from unisono.torch.space.model import spatial
    from unisono.torch.space.part import Part
    from unisono.torch.space.region_dataset import RegionDataset
    from unisono.torch.space.sampler import SpatialSampler
    from unisono.torch.space.verify import verify

# The halo modules are imported on first use: most programs train without them.
_LATER = {
    "Part": "unisono.torch.space.part",
    "RegionDataset": "unisono.torch.space.region_dataset",
    "SpatialSampler": "unisono.torch.space.sampler",
    "halo_exchange": "unisono.torch.space.exchange",
    "spatial": "unisono.torch.space.model",
    "verify": "unisono.torch.space.verify",
}

__all__ = [
    "DistributedDataParallel",
    "DistributedSampler",
    "Embedding",
    "EmbeddingBag",
    "ModuleParameters",
    "Part",
    "RegionDataset",
    "SpatialSampler",
    "average_gradients",
    "broadcast_parameters",
    "halo_exchange",
    "parameters_of",
    "spatial",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = found
    return found
