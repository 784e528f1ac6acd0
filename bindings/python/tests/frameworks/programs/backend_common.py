"""Starts the ranks of a process group over the backend `unisono`, without a launcher."""

import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from unisono.torch.distributed import register_in_older_versions
from unisono.torch.distributed.versions import version

register_in_older_versions()
BACKEND = os.environ.get("BACKEND", "unisono")
SECONDS = timedelta(seconds=60)


def values(rank, dtype, size, seed=0):
    """What a rank contributes; every rank can compute what the others have."""
    options = {"generator": torch.Generator("cpu").manual_seed(1000 * seed + rank), "device": "cpu"}
    if dtype.is_complex:
        return torch.view_as_complex(torch.randint(-4, 5, (size, 2), **options).float()).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (size,), **options).bool()
    low = 0 if not dtype.is_signed else -4
    return torch.randint(low, 5, (size,), **options).to(dtype)


def put(x):
    """A copy on the device that is tested."""
    return x.to(torch.get_default_device(), copy=True)


def same(made, expected):
    """Compares bits, also of types without a comparison."""
    assert made.dtype == expected.dtype and made.shape == expected.shape, (made, expected)
    made, expected = made.cpu().contiguous(), expected.cpu().contiguous()
    if made.dtype.itemsize == 1:
        made, expected = made.view(torch.uint8), expected.view(torch.uint8)
    assert torch.equal(made, expected), (made, expected)


def fails(kind, text, call):
    """The call raises an error of this kind whose message contains the text."""
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return error
    raise AssertionError(f"{text}: no error")


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """PyTorch's function, which accepts no other backend than Gloo before version 2.14; the method does."""
    if version() >= (2, 14):
        dist.monitored_barrier(group, timeout, wait_all_ranks)
    else:
        (group or dist.group.WORLD).monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


def simulate_hosts(numbers):
    """Ranks on simulated hosts: "0111" is one rank on the first and three on the second."""
    if numbers:
        from unisono.torch.distributed import rendezvous

        rendezvous._host = lambda rank, size: numbers[rank]


def one_rank(rank, size, path, names):
    """The process of one rank."""
    torch.set_num_threads(1)
    simulate_hosts(os.environ.get("HOSTS", ""))
    store = dist.FileStore(path, size)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=SECONDS)
    module = sys.modules["__main__"]
    for name in names:
        getattr(module, name)(rank, size)
        dist.barrier()
    dist.destroy_process_group()


def main():
    """Runs the parts that the arguments name, on as many ranks as the first argument says.

    Forked ranks have PyTorch already; spawned ones, for START=spawn, import it, which takes seconds.
    """
    size, names = int(sys.argv[1]), sys.argv[2:]
    context = mp.get_context(os.environ.get("START", "fork"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = (size, f"{folder}/store", names)
        ranks = [context.Process(target=one_rank, args=(rank, *arguments)) for rank in range(size)]
        [process.start() for process in ranks]
        [process.join() for process in ranks]
    sys.exit(any(process.exitcode for process in ranks))
