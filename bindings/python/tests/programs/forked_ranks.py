"""Runs a program on forked ranks: forked_ranks.py RANKS PROGRAM [ARGUMENT]...

The ranks share one import of PyTorch, and of what optimizers import when they are first used, which
take seconds.
"""

import os
import runpy
import sys

import torch._dynamo  # noqa: F401

import unisono.torch  # noqa: F401
from unisono._native import Job


def main():
    """Starts the ranks and waits for them; in a rank, runs the program."""
    _, size, program, *_ = sys.argv
    job = Job(int(size))
    ranks = {}
    for rank in range(int(size)):
        child = os.fork()
        if child == 0:
            os.environ.update(job.environment(rank))
            sys.argv = sys.argv[2:]
            sys.path[0] = os.path.dirname(program)
            runpy.run_path(program, run_name="__main__")
            return
        ranks[child] = rank
    failed = False
    while ranks:
        child, status = os.wait()
        job.rank_ended(ranks.pop(child))
        failed |= status != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
