"""PyTorch's process groups over Unisono: ``torch.distributed.init_process_group("unisono")``.

The backend is registered by an entry point: programs need not import this module. It works for tensors in
host memory, of ranks on one host or several.

Example:
    >>> import torch, torch.distributed as dist
    >>> dist.init_process_group("unisono", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(3)
    >>> dist.all_reduce(x)
    >>> dist.destroy_process_group()
"""

import torch
import torch.distributed as dist

NAME = "unisono"

OLDEST = (2, 14)
"""The oldest version of PyTorch whose process groups accept a backend written in Python."""


def register() -> None:
    """Registers the backend; PyTorch calls it when a program first uses the name.

    Raises:
        ImportError: This build of PyTorch has no process groups, or none with a backend written in Python.
    """
    if not dist.is_available():
        raise ImportError("unisono: this build of PyTorch has no torch.distributed; install another build")
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST:
        raise ImportError(
            f'unisono: init_process_group("unisono") needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and '
            f"this is {torch.__version__}; upgrade it, or use unisono.torch.DistributedDataParallel"
        )
    from unisono.torch.distributed.creation import create

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])


__all__ = ["NAME", "OLDEST", "register"]
