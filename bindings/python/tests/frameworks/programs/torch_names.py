"""Names that PyTorch's versions have in different modules."""

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # before 2.6
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
except ImportError:  # before 2.5
    from torch.distributed._tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

__all__ = [
    "DTensor",
    "MixedPrecisionPolicy",
    "Partial",
    "Replicate",
    "Shard",
    "distribute_tensor",
    "fully_shard",
]
