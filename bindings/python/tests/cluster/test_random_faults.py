"""Random programs on several hosts, each with one random fault at a random time.

Every rank that is still there ends in time, with the right result or an error that says what happened, and
nothing is left behind. Each fault has a seed: `UNISONO_FAULTS=1 UNISONO_FAULTS_SEED=n` repeats one.
"""

import collections
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import UnavailableError, launcher_command
from faults import Fault, Hosts, Round, await_that

# `make soak` tries more, with other seeds.
FAULTS = int(os.environ.get("UNISONO_FAULTS", "4"))
SEED = int(os.environ.get("UNISONO_FAULTS_SEED", "15"))
# Jobs at a time: most of a job is waiting.
JOBS = 2


def available():
    """Returns the launchers of this machine."""
    found = []
    for launcher in ("mpich-ofi", "openmpi-4"):
        try:
            launcher_command(launcher, 1, False)
            found.append(launcher)
        except pytest.skip.Exception as reason:
            print(f"left out: {launcher}: {reason}")
    return found


def work(faults, launchers, folder, report):
    """Takes faults from a list until it is empty; keeps one cluster for each layout."""
    clusters = {}
    try:
        while faults:
            fault = Fault.draw(faults.pop(), launchers)
            if fault.layout not in clusters:
                clusters[fault.layout] = Hosts(fault.layout)
            notes = folder / str(fault.seed)
            notes.mkdir()
            one = Round(fault, clusters[fault.layout], notes)
            try:
                problems = one.run()
            finally:
                one.job.process.kill()
                one.job.process.wait()
                one.job.process.stdout.close()
            report(fault, one, problems)
    finally:
        for hosts in clusters.values():
            hosts.cluster.close()
            hosts.own.clear()
            if not await_that(lambda: not hosts.processes(), 20):  # noqa: B023
                report(None, None, [f"processes outlive their hosts: {hosts.processes()}"])


def test_random_faults(tmp_path, monkeypatch):
    """No fault makes a rank hang, compute something wrong or leave something behind."""
    monkeypatch.chdir(tmp_path)
    try:
        Hosts((1, 1)).cluster.close()
    except UnavailableError as reason:
        pytest.skip(f"several hosts cannot be created here: {reason}")
    launchers = available()
    if not launchers:
        pytest.skip("no MPI launcher here")
    failures, endings = [], collections.Counter()

    def report(fault, one, problems):
        if fault is not None:
            print(f"{fault}: {' '.join(one.endings())} in {getattr(one, 'took', 0):.1f} s", flush=True)
            endings.update((fault.kind, word) for word in one.endings())
        if problems:
            failures.append(f"{fault}:\n" + "\n".join(problems))
            print(failures[-1], flush=True)

    print(f"{FAULTS} faults from seed {SEED} on: UNISONO_FAULTS_SEED={SEED} repeats them", flush=True)
    faults = list(reversed(range(SEED, SEED + FAULTS)))
    with ThreadPoolExecutor(JOBS) as pool:
        workers = [pool.submit(work, faults, launchers, tmp_path, report) for _ in range(JOBS)]
    [worker.result() for worker in workers]
    for (kind, word), count in sorted(endings.items()):
        print(f"{kind}: {count} ranks ended with {word}")
    assert not failures, "\n\n".join(failures)
