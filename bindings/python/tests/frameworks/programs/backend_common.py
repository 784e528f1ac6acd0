"""Starts the ranks of a process group over the backend `unisono`, without a launcher."""

import os
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BACKEND = os.environ.get("BACKEND", "unisono")
SECONDS = timedelta(seconds=60)


def values(rank, dtype, size, seed=0):
    """What a rank contributes; every rank can compute what the others have."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_complex:
        return torch.view_as_complex(torch.randint(-4, 5, (size, 2), generator=generator).float()).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).bool()
    low = 0 if not dtype.is_signed else -4
    return torch.randint(low, 5, (size,), generator=generator).to(dtype)


def same(made, expected):
    """Compares bits, also of types without a comparison."""
    assert made.dtype == expected.dtype and made.shape == expected.shape, (made, expected)
    made, expected = made.contiguous(), expected.contiguous()
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
    """Runs the parts that the arguments name, on as many ranks as the first argument says."""
    size, names = int(sys.argv[1]), sys.argv[2:]
    spawn = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (size, f"{folder}/store", names, sys.argv[0])
        ranks = [spawn.Process(target=_start, args=(rank, *arguments)) for rank in range(size)]
        [process.start() for process in ranks]
        [process.join() for process in ranks]
    sys.exit(any(process.exitcode for process in ranks))


def _start(rank, size, path, names, program):
    import runpy

    # A spawned process imports the program under another name; the parts are looked up in it.
    sys.modules["__main__"].__dict__.update(runpy.run_path(program, run_name="ranks"))
    one_rank(rank, size, path, names)
