"""PyTorch's process groups over Unisono: ``torch.distributed.init_process_group("unisono")``.

With PyTorch 2.14 or newer, the backend is registered by an entry point: programs need not import this module.
With older versions, they import ``unisono.torch`` first. It works for tensors in host memory, of ranks on one
host or several, and for tensors in CUDA memory, of ranks on one host.

Example:
    >>> import torch, torch.distributed as dist
    >>> dist.init_process_group("unisono", store=dist.HashStore(), rank=0, world_size=1)
    >>> x = torch.ones(3)
    >>> dist.all_reduce(x)
    >>> dist.destroy_process_group()
"""

from typing import Any

import torch
import torch.distributed as dist

from unisono.torch.distributed.versions import DEVICES, OLDEST, OLDEST_WITH_BACKENDS, version

NAME = "unisono"


def register() -> None:
    """Registers the backend; PyTorch calls it when a program first uses the name. A second call does nothing.

    Raises:
        ImportError: This build of PyTorch has no process groups, or is too old.
    """
    if not dist.is_available():
        raise ImportError("unisono: this build of PyTorch has no torch.distributed; install another build")
    if version() < OLDEST:
        raise ImportError(
            f'unisono: init_process_group("unisono") needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and '
            f"this is {torch.__version__}; upgrade it, or use unisono.torch.DistributedDataParallel"
        )
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=list(DEVICES))


def register_in_older_versions() -> None:
    """Registers the backend where PyTorch does not find it by its name, if it can be used there."""
    if dist.is_available() and OLDEST <= version() < OLDEST_WITH_BACKENDS:
        register()


def _create(opts: Any, options: object = None) -> Any:
    # The backend is imported on first use: most programs have no process groups.
    from unisono.torch.distributed.creation import create

    return create(opts, options)


__all__ = ["DEVICES", "NAME", "OLDEST", "OLDEST_WITH_BACKENDS", "register", "register_in_older_versions"]
