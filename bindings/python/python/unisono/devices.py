"""Assigns each worker of a host its own accelerator, before a framework is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

from unisono import _native
from unisono.errors import UsageError
from unisono.worlds import joined

# Frameworks that read their settings when they are imported, or at the latest when they first use a device.
_FRAMEWORKS = ("torch", "jax", "tensorflow", "theano")


def pick_device() -> str:
    """Assigns this worker an accelerator of its host; call it before the framework is imported.

    The i-th worker of a host gets its i-th device, and the framework then sees no other. If there are more
    workers than devices, they are assigned round-robin. Without a device nothing is set, and a line on stderr
    reports it. It may be called before or after `init`.

    It sets CUDA_VISIBLE_DEVICES, from the devices that CUDA_VISIBLE_DEVICES already lists; CUDA_DEVICE_ORDER;
    ``device=cuda0`` in THEANO_FLAGS, if no device is given there; and XLA_PYTHON_CLIENT_MEM_FRACTION if
    several workers share a device, because JAX would reserve most of its memory for each.

    Returns:
        "cuda" or "cpu": a name that PyTorch accepts as a device.

    Raises:
        UsageError: The launcher does not provide this worker's index on its host; call `init` first.

    Example:
        >>> import unisono as uni
        >>> uni.pick_device()  # doctest: +SKIP
        'cuda'
    """
    environment = os.environ
    mine = environment.get("CUDA_VISIBLE_DEVICES")
    if mine and mine == environment.get("UNISONO_DEVICE"):
        return "cuda"  # assigned before, by this process or by its parent

    local_rank, local_size = _place()
    devices = installed()
    if not devices:
        if local_rank == 0:
            print("unisono: no accelerator for this host's workers: they stay on the CPU", file=sys.stderr)
        return "cpu"

    late = [name for name in _FRAMEWORKS if name in sys.modules and not _is_in_time(name)]
    if late:
        warnings.warn(
            f"pick_device: {late[0]} was imported before and may keep the device that it has chosen; "
            f"call unisono.pick_device() above `import {late[0]}`",
            stacklevel=2,
        )
    environment.update(assignment(devices, local_rank, local_size))
    if local_size is not None and local_size > len(devices) and local_rank == 0:
        print(
            f"unisono: {local_size} workers share {len(devices)} accelerator{'s'[: len(devices) > 1]}, "
            f"up to {-(-local_size // len(devices))} on each",
            file=sys.stderr,
        )
    return "cuda"


def installed() -> list[str]:
    """The devices that this process may assign to workers.

    Returns:
        Their names, as in CUDA_VISIBLE_DEVICES.
    """
    return _visible(_installed(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def assignment(devices: list[str], worker: int, workers: int | None) -> dict[str, str]:
    """The environment variables with which a worker sees one device.

    Args:
        devices: The available devices.
        worker: The index of the worker; surplus workers are assigned round-robin.
        workers: The number of workers, if known.

    Returns:
        The variables to set; those that the user has set stay.
    """
    own = devices[worker % len(devices)]
    flags = os.environ.get("THEANO_FLAGS", "")
    wanted = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if "device=" not in flags:
        wanted["THEANO_FLAGS"] = ",".join(filter(None, [flags, "device=cuda0"]))
    if workers is not None and workers > len(devices):
        # JAX would reserve most of the memory for each.
        wanted["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.75 / -(-workers // len(devices)):.3f}"
    kept = {name: value for name, value in wanted.items() if name == "THEANO_FLAGS" or name not in os.environ}
    return {"CUDA_VISIBLE_DEVICES": own, "UNISONO_DEVICE": own, **kept}


def _place() -> tuple[int, int | None]:
    """This process's rank on its host, and the number of ranks there, if the launcher provides it."""
    world = joined()
    if world is not None:
        return world.local_rank, world.local_size
    placement = _native.placement()
    if placement is not None:
        return placement
    raise UsageError(
        "pick_device: expected a launcher that tells a worker its rank on this host, received none; "
        "call unisono.init() before unisono.pick_device()"
    )


def _installed() -> list[str]:
    """Every device of this host, named as in CUDA_VISIBLE_DEVICES; loads no framework and no CUDA."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
        if listing.returncode == 0:
            return _listed(listing.stdout)
    except (OSError, subprocess.TimeoutExpired):
        pass
    # The CUDA library is not queried: it would read CUDA_VISIBLE_DEVICES once, too early.
    numbers = [re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*")]
    count = sum(number is not None for number in numbers)
    if count == 0:
        count = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    return [str(number) for number in range(count)]


def _listed(text: str) -> list[str]:
    """The devices that ``nvidia-smi -L`` lists; a partitioned (MIG) card is replaced by its instances."""
    cards: list[list[str]] = []
    for line in text.splitlines():
        card = re.match(r"GPU (\d+):", line)
        part = re.search(r"\(UUID: (MIG-[^)]+)\)", line)
        if card:
            cards.append([card[1]])
        elif part and cards:
            cards[-1].append(part[1])
    return [name for card in cards for name in (card[1:] or card)]


def _visible(installed: list[str], limit: str | None) -> list[str]:
    """The devices from which this process may choose."""
    if limit is None or not installed:
        return installed
    names = []
    for name in (part.strip() for part in limit.split(",")):
        # CUDA ignores everything after a number that is not a device.
        if not name or name.startswith("-") or (name.isdigit() and int(name) >= len(installed)):
            break
        names.append(name)
    return names


def _is_in_time(name: str) -> bool:
    """Whether an imported framework has not queried the devices yet; PyTorch does so on first use."""
    if name != "torch":
        return False
    cuda = getattr(sys.modules["torch"], "cuda", None)
    return cuda is not None and not cuda.is_initialized()
