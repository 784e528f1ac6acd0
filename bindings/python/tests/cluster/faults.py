"""One random fault in one job on several hosts: what happens, and whether the ranks end as they should."""

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from conftest import PROGRAMS, Cluster, Job, launcher_command

# How long a program runs without a fault, and the timeout of its calls.
RUN_SECONDS, TIMEOUT = 3.0, 5.0
# How long a rank may take to end after its deadline: it asks what the others do, and leaves the world. The
# machine may be busy, too.
GRACE = 30.0
START_SECONDS = 90.0
LAYOUTS = [(2, 2), (3, 1)]
# How long a pause or a short cut lasts: far less than the timeout, so that it is only a delay.
DELAY = (0.1, 1.2)
# The levels of the world on 2 x 2 ranks, which users do not know.
STEP_GROUPS = ["group [0, 2]", "group [0, 1]", "group [2, 3]", "group [3, 1]", "group [3, 2]", "group [1, 0]"]


@dataclass
class Fault:
    """What happens to which rank of which job, and when."""

    seed: int
    layout: tuple[int, int]
    launcher: str
    survives: bool
    kind: str
    rank: int
    # Seconds after all ranks run; or, if `early`, after the first processes exist.
    after: float
    early: bool
    seconds: float

    @classmethod
    def draw(cls, seed, launchers):
        """Returns the fault of this seed."""
        dice = random.Random(seed)
        hosts, slots = layout = dice.choice(LAYOUTS)
        kind = dice.choice(["kill", "kill", "stop", "pause", "cut", "blip"])
        survives = dice.random() < 0.7
        # If a rank is lost while MPI starts up, the others wait in MPI, unless the launcher ends the job.
        early = kind == "kill" and not survives and dice.random() < 0.3
        return cls(
            seed, layout, dice.choice(launchers), survives, kind, dice.randrange(hosts * slots),
            dice.uniform(0, 1.5 if early else RUN_SECONDS), early, dice.uniform(*DELAY),
        )  # fmt: skip

    @property
    def host(self):
        """The host of the rank."""
        return f"host{self.rank // self.layout[1] + 1}"

    def __str__(self):
        """Describes the fault."""
        when = f"{self.after:.2f} s after {'the start' if self.early else 'all ranks run'}"
        lasting = f" for {self.seconds:.2f} s" if self.kind in ("pause", "blip") else ""
        recovery = " with recovery" if self.survives else ""
        hosts, slots = self.layout
        job = f"{hosts}x{slots} under {self.launcher}{recovery}"
        return f"seed {self.seed}: {self.kind}{lasting} rank {self.rank} of {job}, {when}"


class Hosts:
    """A cluster and its processes, as seen from outside."""

    def __init__(self, layout):
        self.cluster = Cluster(*layout, shared=(Path.cwd(),))
        read = ["readlink", "/proc/self/ns/pid"]
        self.namespaces = {self.cluster.check(read, name).strip() for name in ("head", *self.cluster.names)}
        # Those that keep the hosts alive.
        self.own = set()
        self.own = set(self.processes())

    def processes(self):
        """Returns the pids of all processes of jobs on the hosts."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                is_there = os.readlink(path / "ns/pid") in self.namespaces
                if is_there and "\nState:\tZ" not in (path / "status").read_text():
                    found.append(int(path.name))
            except OSError:  # it has ended
                continue
        return [pid for pid in found if pid not in self.own]

    def ranks(self):
        """Returns the pid of each rank that runs."""
        found = {}
        for pid in self.processes():
            try:
                arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                variables = dict(
                    one.split(b"=", 1)
                    for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    if b"=" in one
                )
            except OSError:
                continue
            rank = variables.get(b"PMI_RANK", variables.get(b"OMPI_COMM_WORLD_RANK"))
            if rank is not None and len(arguments) > 1 and arguments[1].endswith(b"random_calls.py"):
                found[int(rank)] = pid
        return found

    def left(self):
        """Returns what a job has left in the memory of the hosts."""
        left = []
        for host in self.cluster.names:
            sockets = self.cluster.check(["cat", "/proc/net/unix"], host)
            files = self.cluster.check(["ls", "/dev/shm"], host)
            left += [f"{host}: {line}" for line in (sockets + files).splitlines() if "unisono" in line]
        return left

    def kill_all(self):
        """Ends all processes, and restores all links."""
        for host in self.cluster.names:
            self.cluster.restore(host)
        for pid in self.processes():
            kill(pid, signal.SIGKILL)
        await_that(lambda: not self.processes(), 20)


def kill(pid, number):
    """Sends a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def await_that(condition, seconds):
    """Waits until a condition is true; returns whether it is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Round:
    """One job with its fault."""

    def __init__(self, fault, hosts, folder):
        self.fault, self.hosts, self.notes = fault, hosts, folder
        ranks = fault.layout[0] * fault.layout[1]
        command, variables = launcher_command(fault.launcher, ranks, fault.survives)
        path = os.pathsep.join([*map(str, PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
        variables = {
            "NOTES": str(folder),
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "UNISONO_TIMEOUT": "60",
            **variables,
        }
        arguments = [str(PROGRAMS[0] / "random_calls.py"), str(fault.seed), str(RUN_SECONDS), str(TIMEOUT)]
        self.size, self.output = ranks, None
        self.job = Job(hosts.cluster, [*command, *arguments], folder, variables)

    def note(self, rank):
        path = self.notes / str(rank)
        return path.read_text() if path.exists() else ""

    def run(self):
        """Runs the job, and returns how its ranks ended; the problems come first."""
        fault, hosts, problems = self.fault, self.hosts, []
        ended = lambda: self.job.process.poll() is not None  # noqa: E731
        started = lambda: len(hosts.ranks()) == self.size or ended()  # noqa: E731
        running = lambda: all(map(self.note, range(self.size))) or ended()  # noqa: E731
        if not await_that(started if fault.early else running, START_SECONDS):
            return [f"the job did not start: {self.printed()}"]
        pids = hosts.ranks()
        time.sleep(fault.after)
        begin = time.monotonic()
        self.cause(pids)
        lost = {fault.rank} if fault.kind in ("kill", "stop") else set()
        others = {rank: pid for rank, pid in pids.items() if rank not in lost}
        limit = RUN_SECONDS + TIMEOUT + GRACE
        remaining = lambda: {one: pid for one, pid in hosts.ranks().items() if others.get(one) == pid}  # noqa: E731
        if not await_that(lambda: not remaining(), limit):
            for rank, pid in remaining().items():
                late = f"rank {rank} (process {pid}) has not ended {limit} s after the fault"
                problems.append(f"{late}: {self.note(rank)!r}")
        self.took = time.monotonic() - begin
        if fault.kind == "stop" and fault.rank in pids and pids[fault.rank] in hosts.processes():
            kill(pids[fault.rank], signal.SIGKILL)
        if fault.kind == "cut":
            hosts.cluster.restore(fault.host)
        # A launcher need not notice that a host has come back, and one that lets jobs recover need not end.
        may_stay = fault.kind == "cut" or fault.survives
        if not await_that(ended, 2 if may_stay else 30) and not may_stay:
            problems.append("the launcher has not ended")
        if ended() and not await_that(lambda: not hosts.processes(), 20):
            problems.append(f"processes are left: {[describe(pid) for pid in hosts.processes()]}")
        hosts.kill_all()
        problems += [f"left behind: {one}" for one in hosts.left()]
        problems += self.judge()
        if problems:
            problems.append(self.printed())
        return problems

    def cause(self, pids):
        """Causes the fault."""
        fault, cluster = self.fault, self.hosts.cluster
        pid = pids.get(fault.rank)
        match fault.kind:
            case "kill" if pid:
                kill(pid, signal.SIGKILL)
            case "stop" if pid:
                kill(pid, signal.SIGSTOP)
            case "pause" if pid:
                kill(pid, signal.SIGSTOP)
                time.sleep(fault.seconds)
                kill(pid, signal.SIGCONT)
            case "cut":
                cluster.cut(fault.host)
            case "blip":
                cluster.cut(fault.host)
                time.sleep(fault.seconds)
                cluster.restore(fault.host)

    def judge(self):
        """Returns what is wrong with the ranks' results and errors."""
        fault, problems = self.fault, []
        for rank in range(self.size):
            note = self.note(rank)
            word = note.split(":")[0]
            problem = None
            if word not in ("done", "PeerLost", "Timeout", "running", ""):
                problem = "an unexpected ending"
            elif fault.kind in ("pause", "blip") and word != "done":
                problem = "not the end of a job that was only delayed"
            elif fault.kind == "kill" and word == "Timeout":
                problem = "a timeout, although the rank has ended and its host runs"
            elif word in ("running", "") and not self.may_vanish(rank):
                problem = "no ending"
            elif any(group in note for group in STEP_GROUPS):
                problem = "an error that names a group which the program has not made"
            if problem is not None:
                problems.append(f"rank {rank}: {problem}: {note!r}")
        return problems

    def may_vanish(self, rank):
        """Whether a rank may end without a note: it was lost itself, or its launcher or its MPI ended it."""
        fault, slots = self.fault, self.fault.layout[1]
        lost = rank == fault.rank and fault.kind in ("kill", "stop")
        # MPICH's launcher ends the other ranks of a host where one has died.
        beside = fault.kind == "kill" and rank // slots == fault.rank // slots
        ended = "Abort(" in self.printed() or (beside and fault.launcher.startswith("mpich"))
        return lost or not fault.survives or ended

    def endings(self):
        """Returns each rank's ending in a word."""
        return [self.note(rank).split(":")[0] or "nothing" for rank in range(self.size)]

    def printed(self):
        """Returns what the job has printed; it ends with the job."""
        if self.output is None:
            self.output = self.job.printed()
        return self.output


def describe(pid):
    """Returns the command of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"process {pid}"
