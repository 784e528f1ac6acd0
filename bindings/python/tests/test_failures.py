"""The errors of ranks when others are late, lost, stopped or in another call."""

import json
import re
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "trouble.py"


def line_of(text):
    lines = PROGRAM.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_timeout_names_the_missing_rank_and_its_line(run_ranks):
    seen = json.loads(run_ranks(3, "trouble.py", "late").check().notes[0])
    assert seen["kind"] == 2
    assert seen["operation"] == "all_reduce" and "all_reduce #" in seen["message"]
    assert seen["seconds"] > 0.9
    (missing,) = seen["missing"]
    assert missing["rank"] == 2
    assert missing["pid"] == seen["pid_of_2"]
    assert missing["location"] == f"trouble.py:{line_of('LATE HERE')} in daydream"
    assert missing["location"] in seen["message"]


def test_a_rank_that_holds_the_gil_is_named(run_ranks):
    seen = json.loads(run_ranks(2, "trouble.py", "busy").check().notes[0])
    assert [missing["rank"] for missing in seen["missing"]] == [1]


def test_a_killed_rank_is_named_long_before_the_deadline(run_ranks):
    job = run_ranks(3, "trouble.py", "killed")
    assert job.status != 0
    for rank in (0, 1):
        seen = json.loads(job.notes[rank])
        assert seen["kind"] == 3, seen
        assert seen["seconds"] < 20
        assert [lost["rank"] for lost in seen["lost"]] == [2]


def test_a_stopped_rank_is_named(run_ranks):
    seen = json.loads(run_ranks(2, "trouble.py", "stopped").check().notes[0])
    assert seen["kind"] == 2
    assert [missing["rank"] for missing in seen["missing"]] == [1]


@pytest.mark.parametrize("where", [{}, {"launcher": "mpich", "UNISONO_HOSTS": "2"}])
def test_a_revoked_group_ends_the_waits_of_all_its_ranks(run_ranks, where):
    notes = run_ranks(3, "trouble.py", "revoked", **where).check().notes
    seen = [json.loads(notes[rank]) for rank in range(3)]
    assert [one["kind"] for one in seen] == [1, 3, 3], seen
    assert "which this rank has revoked" in seen[0]["message"]
    assert all(one["seconds"] < 30 and "it revoked this group" in one["message"] for one in seen[1:]), seen


def test_mismatched_calls_are_named(run_ranks):
    notes = run_ranks(2, "trouble.py", "mismatched").check().notes
    for rank in (0, 1):
        seen = json.loads(notes[rank])
        assert seen["kind"] == 1
        assert "all_reduce" in seen["message"] and "broadcast" in seen["message"]
        assert [call[0] for call in seen["calls"]] == [0, 1]


@pytest.mark.parametrize("variable", ["UNISONO_TRANSPORT=mpi", "UNISONO_HOSTS=2"])
@pytest.mark.parametrize("launcher", ["mpich", "openmpi"])
def test_mismatched_calls_over_mpi_are_named_without_a_wait(run_ranks, launcher, variable):
    """One rank detects the mismatch; the other learns at once that its peer will not arrive."""
    name, value = variable.split("=")
    notes = run_ranks(2, "trouble.py", "mismatched", launcher=launcher, **{name: value}).check().notes
    seen = [json.loads(notes[rank]) for rank in (0, 1)]
    assert any("all_reduce" in one["message"] and "broadcast" in one["message"] for one in seen)
    assert all(one["kind"] in (1, 3) for one in seen)


def test_a_call_that_one_rank_rejected_is_not_mistaken_for_its_next(run_ranks):
    notes = run_ranks(3, "trouble.py", "rejected").check().notes
    for rank in range(3):
        seen = json.loads(notes[rank])
        assert seen["kind"] == 1
        numbers = re.findall(r"rank \d called all_reduce #(\d+)", seen["message"])
        assert [int(number) - int(numbers[0]) for number in numbers] == [0, 1, 0]


def test_arguments_that_one_rank_rejects_never_mix_up_calls(run_ranks):
    assert run_ranks(3, "rejected.py").check().notes == dict.fromkeys(range(3), "done")


def test_calls_after_a_timeout_state_that_the_group_failed_before(run_ranks):
    seen = json.loads(run_ranks(2, "trouble.py", "later").check().notes[0])
    assert seen["type"] == "Timeout" and seen["missing"][0]["rank"] == 1, seen
    assert "barrier (not made: this group failed earlier, in all_reduce;" in seen["message"], seen


def test_calls_of_different_sizes_are_errors_of_their_verb(run_ranks):
    notes = run_ranks(2, "trouble.py", "sizes").check().notes
    assert [json.loads(notes[rank])["operation"] for rank in range(2)] == ["all_gather", "all_gather"]


def test_different_rows_are_named_on_every_rank(run_ranks):
    notes = run_ranks(2, "trouble.py", "rows").check().notes
    for rank in (0, 1):
        seen = json.loads(notes[rank])
        assert seen["kind"] == 1
        assert "[4, 2]" in seen["message"] and "[4, 3]" in seen["message"]


@pytest.mark.parametrize("how", ["interrupted", "interrupted-pending", "interrupted-handler"])
def test_control_c_ends_a_wait(run_ranks, how):
    seen = json.loads(run_ranks(2, "trouble.py", how).check().notes[0])
    if how != "interrupted-pending":
        # The next call was not interrupted: its error names the one that was.
        assert seen["type"] == "UsageError" and seen["rank"] == 0 and seen["operation"] == "barrier", seen
        assert "abandoned when barrier #2 was interrupted" in seen["message"]
        seen["type"] = seen["interrupted_by"]
    assert seen["type"] == ("Custom" if how == "interrupted-handler" else "KeyboardInterrupt")


def test_a_rank_without_file_descriptors_mistakes_no_live_rank_for_dead(run_ranks):
    assert run_ranks(2, "trouble.py", "no-descriptors").check().notes[0] == "[2.0, 2.0]"


def test_a_program_that_raises_ends_the_job(run_ranks):
    job = run_ranks(2, "trouble.py", "raises", UNISONO_TIMEOUT="1000")
    assert job.status != 0
    assert "no more pencils" in job.output
