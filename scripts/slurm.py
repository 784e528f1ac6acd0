#!/usr/bin/env python3
"""Starts Slurm on several hosts of this machine, made of namespaces, and runs a command or a shell there.

    scripts/slurm.py 2 --slots 2                # 2 nodes with 2 CPUs each, and a shell with srun and sbatch
    scripts/slurm.py 2 --slots 2 -- srun -N 2 -n 4 hostname

The hosts are those of scripts/cluster.py. `slurmctld` runs on `head`, like the shell, and a `slurmd` on every
other host. Leaving the shell, or killing any part, ends everything.

Needs what scripts/cluster.py needs, root, and the system packages slurmctld, slurmd and slurm-client.
Tests import this file and use `SlurmCluster`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from cluster import HEAD_ADDRESS, NETWORK, Cluster, UnavailableError, main

# On every host, in its own /tmp.
SLURM = "/tmp/slurm"
START_SECONDS = 30
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}

# No authentication: only processes on these hosts can reach the daemons. The hosts have no control groups, so
# Slurm finds processes by their parents. Jobs start at once, and have 2 seconds to end after a signal.
CONFIGURATION = f"""
ClusterName=namespaces
SlurmctldHost=head({HEAD_ADDRESS})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={SLURM}/state
SlurmdSpoolDir={SLURM}/spool
SlurmctldPidFile={SLURM}/slurmctld.pid
SlurmdPidFile={SLURM}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""
# Version 1 is not looked for before a plug-in needs it.
CONTROL_GROUPS = "CgroupPlugin=cgroup/v1\n"


class SlurmCluster(Cluster):
    """Hosts with Slurm: a node for each host, with as many CPUs as slots."""

    hint = "srun -N {hosts} -n {ranks} hostname"

    def __init__(
        self, hosts: int, slots: int = 1, containers: bool = False, shared: tuple[Path, ...] = ()
    ) -> None:
        """Starts the hosts, and Slurm on them; see `Cluster`.

        Raises:
            UnavailableError: This machine cannot create them, or lacks Slurm.
        """
        for program, package in PROGRAMS.items():
            if shutil.which(program) is None:
                raise UnavailableError(f"{program} is missing (install the system package {package})")
        if os.geteuid() != 0:
            raise UnavailableError("Slurm's daemons need root")
        super().__init__(hosts, slots, containers, shared)
        try:
            self._start_slurm(slots)
        except BaseException:
            self.close()
            raise

    def _start_slurm(self, slots: int) -> None:
        nodes = (
            f"NodeName={name} NodeAddr={NETWORK}.{number} CPUs={slots}\n"
            for number, name in enumerate(self.names, 1)
        )
        files = {"slurm.conf": "".join(nodes) + CONFIGURATION, "cgroup.conf": CONTROL_GROUPS}
        write = [f"printf %s {shlex.quote(text)} >{SLURM}/{name}" for name, text in files.items()]
        for host in ("head", *self.names):
            daemon = "slurmctld" if host == "head" else "slurmd"
            start = f"SLURM_CONF={SLURM}/slurm.conf setsid {daemon} -D >{SLURM}/log 2>&1 </dev/null &"
            setup = [f"mkdir -p {SLURM}/state {SLURM}/spool", *write, link_pmix(), start]
            self.check(["sh", "-euc", "\n".join(setup)], host)
        deadline = time.monotonic() + START_SECONDS
        idle = [
            "env",
            f"SLURM_CONF={SLURM}/slurm.conf",
            "sinfo",
            "--noheader",
            "--states=idle",
            "--format=%D",
        ]
        while not self._answers(idle, f"{len(self.names)}\n"):
            if time.monotonic() > deadline:
                logs = [
                    self.check(["tail", "-n", "5", f"{SLURM}/log"], host) for host in ("head", self.names[0])
                ]
                raise UnavailableError(f"Slurm did not start within {START_SECONDS} s: {' '.join(logs)}")
            time.sleep(0.1)

    def _answers(self, command: list[str], expected: str) -> bool:
        try:
            return self.check(command) == expected
        except UnavailableError:  # slurmctld does not listen yet
            return False

    def environment(self) -> dict[str, str]:
        """Returns the environment in which Slurm's commands work, and MPI launchers use its allocations."""
        # A job of another Slurm may run this script.
        foreign = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "PMI_", "PMIX_")
        hostfiles = ("HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")
        kept = {
            name: value
            for name, value in super().environment().items()
            if not name.startswith(foreign) and name not in hostfiles
        }
        return {**kept, "SLURM_CONF": f"{SLURM}/slurm.conf"}


def link_pmix() -> str:
    """Returns the script that lets Slurm load PMIx without the headers of PMIx.

    Debian's plug-in loads `libpmix.so`, a link that the package libpmix-dev alone contains. The script mounts
    a copy of the library's folder with that link, on one host.
    """
    for folder in Path("/usr/lib").glob("*/pmix2/lib"):
        if not (folder / "libpmix.so").exists() and (folder / "libpmix.so.2").exists():
            copy = f"{SLURM}/pmix"
            return (
                f"cp -r {folder} {copy}\nln -s libpmix.so.2 {copy}/libpmix.so\nmount --bind {copy} {folder}"
            )
    return ""


if __name__ == "__main__":
    sys.exit(main(SlurmCluster))
