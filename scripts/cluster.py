#!/usr/bin/env python3
"""Starts several hosts on this machine, made of Linux namespaces, and runs a command or a shell beside them.

    scripts/cluster.py 3                            # 3 hosts, and a shell whose mpirun and mpiexec reach them
    scripts/cluster.py 2 --slots 2 -- mpirun -n 4 hostname
    scripts/cluster.py 2 --containers -- ...        # containers of one machine: they share the boot id

A host has its own network, host name, processes, System V IPC, /tmp, /dev/shm and boot id. Files outside /tmp
are shared, as on a cluster with a network file system; so are the current directory and this repository.
The shell runs on a further host, `head`, like the login node of a cluster: there `ssh host1` enters a host,
and `ip link set host2 down` cuts the link of host2. Leaving the shell, or killing any part, ends everything.

Needs unshare and nsenter (util-linux), ip (iproute2), and either root or unprivileged user namespaces.
Tests import this file and use `Cluster`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETWORK = "10.77.0"
HEAD_ADDRESS = f"{NETWORK}.254"
# Visible in the namespaces of `head` alone.
FOLDER = "/tmp/cluster"
UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The first process of a host. It collects orphans, and ends, with all other processes of the host, when its
# standard input does: when the process that holds the other end has ended, for whatever reason.
INIT = "trap '' CHLD; echo ready; exec cat >/dev/null"

OWN_BOOT_ID = """
cat /proc/sys/kernel/random/uuid >/dev/shm/boot_id
mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id
rm /dev/shm/boot_id
"""

# Like the real one, it takes little of the environment along: launchers must forward what their ranks need.
SSH = f"""#!/bin/sh
# ssh [-OPTION]... HOST [COMMAND...]: enters the namespaces of a host.
while case "$1" in -*) true ;; *) false ;; esac; do shift; done
read -r pid 2>/dev/null <"{FOLDER}/pids/$1" || {{ echo "ssh: no host named $1" >&2; exit 255; }}
shift
[ $# -gt 0 ] || set -- "exec ${{SHELL:-sh}}"
ns=/proc/$pid/ns
exec nsenter --net=$ns/net --mount=$ns/mnt --uts=$ns/uts --ipc=$ns/ipc --pid=$ns/pid_for_children -- \\
    env -i PATH="$PATH" HOME="$HOME" SHELL="${{SHELL:-sh}}" TERM="${{TERM:-dumb}}" sh -c "$*"
"""


class UnavailableError(Exception):
    """This machine, or this user, cannot create such hosts; the text is the reason."""


class Namespaces:
    """A set of namespaces, alive as long as this object and its process."""

    def __init__(self, outside: list[str], options: list[str], setup: str) -> None:
        """Creates namespaces inside those that `outside` enters, and runs `setup`, a shell script, there."""
        self.options = options
        command = [*outside, "sh", "-c", 'echo $$; exec "$@"', "sh", *UNSHARE, *options]
        self.process = subprocess.Popen(
            [*command, "sh", "-euc", f"{setup}\n{INIT}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        # As seen from `outside`; the forked child alone is in the new PID namespace.
        self.pid = self.process.stdout.readline().strip()
        if self.process.stdout.readline() != "ready\n":
            raise UnavailableError(self.close().strip() or "unshare failed")

    def enter(self) -> list[str]:
        """Returns a command prefix that runs a command in these namespaces, for use in those outside."""
        folder = f"/proc/{self.pid}/ns"
        names = {"net": "net", "mount": "mnt", "uts": "uts", "ipc": "ipc", "pid": "pid_for_children"}
        user = [f"--user={folder}/user", "--preserve-credentials"] if self.options else []
        return ["nsenter", *user, *(f"--{option}={folder}/{file}" for option, file in names.items()), "--"]

    def close(self) -> str:
        """Ends every process in these namespaces, and returns what `setup` has written to standard error."""
        try:
            return self.process.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.communicate()[1]


class Cluster:
    """Hosts named host1, host2 and so on, and one named head, connected by a bridge. A context manager."""

    hint = "mpiexec -n {ranks} hostname"

    def __init__(
        self, hosts: int, slots: int = 1, containers: bool = False, shared: tuple[Path, ...] = ()
    ) -> None:
        """Starts the hosts.

        Args:
            hosts: How many, besides `head`.
            slots: How many ranks MPI launchers place on each, unless their arguments say otherwise.
            containers: Whether the hosts share one boot id, as the containers of one machine do.
            shared: Further folders below /tmp that all hosts share.

        Raises:
            UnavailableError: This machine cannot create them.
        """
        for program, package in {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}.items():
            if shutil.which(program) is None:
                raise UnavailableError(f"{program} is missing (install the system package {package})")
        self.names = [f"host{number}" for number in range(1, hosts + 1)]
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        folders = own_folders((ROOT, Path.cwd(), Path(sys.prefix), *shared))
        self.head = Namespaces([], user, f"{folders}\n{self._head_setup(slots)}")
        self.hosts: dict[str, Namespaces] = {}
        boot_id = "" if containers else OWN_BOOT_ID
        try:
            for number, name in enumerate(self.names, 1):
                self._start(name, f"{NETWORK}.{number}", f"{folders}\nhostname {name}\n{boot_id}")
        except BaseException:
            self.close()
            raise

    def _head_setup(self, slots: int) -> str:
        """Returns the script that sets up `head`: the bridge, the names of all hosts, `ssh`."""
        addresses = "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(self.names, 1))
        files = {
            "hosts": f"127.0.0.1 localhost\n{HEAD_ADDRESS} head\n{addresses}",
            "slots": "".join(f"{name} slots={slots}\n" for name in self.names),
            "machines": "".join(f"{name}:{slots}\n" for name in self.names),
            "bin/ssh": SSH,
        }
        write = (f"printf %s {shlex.quote(text)} >{FOLDER}/{name}" for name, text in files.items())
        return "\n".join([
            f"mkdir -p {FOLDER}/bin {FOLDER}/pids",
            *write,
            f"chmod +x {FOLDER}/bin/ssh",
            f"mount --bind {FOLDER}/hosts /etc/hosts",
            "hostname head",
            "ip link set lo up",
            "ip link add bridge type bridge",
            f"ip address add {HEAD_ADDRESS}/24 dev bridge",
            "ip link set bridge up",
        ])  # fmt: skip

    def _start(self, name: str, address: str, setup: str) -> None:
        host = self.hosts[name] = Namespaces(self.head.enter(), [], setup)
        link = f"ip link add {name} master bridge type veth peer name eth0 netns {host.pid}"
        pid = f"echo {host.pid} >{FOLDER}/pids/{name}"
        self.check(["sh", "-c", f"{link} && ip link set {name} up && {pid}"])
        up = f"ip link set lo up && ip address add {address}/24 dev eth0 && ip link set eth0 up"
        self.check(["sh", "-c", up], name)

    def command(self, command: list[str], host: str = "head") -> list[str]:
        """Returns a command that runs `command` on a host, in the current directory."""
        enter = [*self.head.enter(), *(self.hosts[host].enter() if host != "head" else [])]
        return [*enter, "env", f"--chdir={os.getcwd()}", *command]

    def environment(self) -> dict[str, str]:
        """Returns the environment in which MPI launchers on `head` reach the hosts."""
        return {
            **os.environ,
            "PATH": f"{FOLDER}/bin:{os.environ['PATH']}",
            "HYDRA_HOST_FILE": f"{FOLDER}/machines",
            "OMPI_MCA_orte_default_hostfile": f"{FOLDER}/slots",
            "PRTE_MCA_prte_default_hostfile": f"{FOLDER}/slots",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_ALLOW_RUN_AS_ROOT": "1",
            "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def check(self, command: list[str], host: str = "head") -> str:
        """Runs a short command on a host and returns its output.

        Raises:
            UnavailableError: It failed.
        """
        done = subprocess.run(self.command(command, host), text=True, capture_output=True, timeout=30)
        if done.returncode != 0:
            raise UnavailableError(done.stderr.strip() or f"{command} failed")
        return done.stdout

    def cut(self, host: str) -> None:
        """Cuts the link of a host: packets are lost without notice."""
        self.check(["ip", "link", "set", host, "down"])

    def restore(self, host: str) -> None:
        """Restores the link of a host."""
        self.check(["ip", "link", "set", host, "up"])

    def close(self) -> None:
        """Ends all hosts and every process on them."""
        for namespaces in (self.head, *self.hosts.values()):
            namespaces.close()

    def __enter__(self) -> Cluster:
        """Returns the cluster."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all hosts."""
        self.close()


def own_folders(shared: tuple[Path, ...]) -> str:
    """Returns the script that gives a host its own /tmp, /dev/shm and /sys.

    Shared folders that are below /tmp stay visible.
    """
    below = sorted({shlex.quote(str(path)) for path in shared if path.is_relative_to("/tmp")})
    keep = [f"mkdir /dev/shm/{n}; mount --bind {path} /dev/shm/{n}" for n, path in enumerate(below)]
    back = [f"mkdir -p {path}; mount --bind /dev/shm/{n} {path}" for n, path in enumerate(below)]
    drop = [f"umount /dev/shm/{n}; rmdir /dev/shm/{n}" for n, _ in enumerate(below)]
    own = ["mount -t tmpfs tmpfs /dev/shm", *keep, "mount -t tmpfs tmpfs /tmp", *back, *drop]
    # /sys lists the network devices of the namespace in which it was mounted.
    return "\n".join([*own, "mount -t sysfs sysfs /sys"])


def main(kind: type[Cluster] = Cluster) -> int:
    """Starts hosts of a kind, and runs a command, or a shell, on `head`."""
    usage = "%(prog)s HOSTS [--slots N] [--containers] [-- COMMAND...]"
    module = sys.modules[kind.__module__]
    parser = argparse.ArgumentParser(usage=usage, description=(module.__doc__ or "").split("\n\n")[0])
    parser.add_argument("hosts", type=int, help="how many hosts")
    parser.add_argument("--slots", type=int, default=1, help="ranks per host, by default")
    parser.add_argument("--containers", action="store_true", help="the hosts share one boot id")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    try:
        cluster = kind(arguments.hosts, arguments.slots, arguments.containers)
    except UnavailableError as reason:
        print(f"cluster: hosts cannot be created here: {reason}", file=sys.stderr)
        return os.EX_UNAVAILABLE
    with cluster:
        if not command:
            ranks = arguments.hosts * arguments.slots
            hint = kind.hint.format(hosts=arguments.hosts, ranks=ranks)
            print(f"hosts: {', '.join(cluster.names)}; try: {hint}")
            print("ssh host1 enters a host, ip link set host1 down cuts its link, exit ends all", flush=True)
            command = [os.environ.get("SHELL", "sh")]
        return subprocess.run(cluster.command(command), env=cluster.environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
