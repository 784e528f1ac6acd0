"""Networks on ranks that are processes, and on ranks that die."""

import pytest


@pytest.mark.parametrize("ranks", [2, 4])
def test_networks_between_processes(run_program, ranks):
    job = run_program(ranks, "network.py", launcher="forked").check()
    assert sorted(job.notes) == list(range(ranks))


def test_a_rank_that_dies_is_named(run_program):
    job = run_program(3, "lost.py")
    assert job.status != 0
    assert {rank: note for rank, note in job.notes.items()} == {0: "lost 1", 2: "lost 1"}, job.output


def test_dry_runs_complete_and_import_nothing_heavy(run_program):
    run_program(1, "dry_run.py", launcher="none").check()
