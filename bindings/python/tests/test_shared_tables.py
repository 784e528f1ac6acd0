"""Tables on several ranks: shared, failing, saved, found again."""

import json

import numpy as np
import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_our_launcher(run_ranks, ranks):
    job = run_ranks(ranks, "tables.py", str(ranks)).check()
    assert len(job.notes) == ranks


def test_no_launcher(run_ranks):
    run_ranks(1, "tables.py", "1", launcher="none").check()


@pytest.mark.parametrize("launcher", ["mpich", "openmpi"])
def test_mpi(run_ranks, launcher):
    job = run_ranks(3, "tables.py", "3", launcher=launcher).check()
    assert set(job.notes.values()) == {"shm"}


@pytest.mark.parametrize(
    ("variable", "transport"), [("UNISONO_HOSTS=2", "shm+mpi"), ("UNISONO_TRANSPORT=mpi", "mpi")]
)
@pytest.mark.parametrize("launcher", ["mpich", "openmpi"])
def test_between_hosts(run_ranks, launcher, variable, transport):
    name, value = variable.split("=")
    job = run_ranks(3, "tables.py", "3", launcher=launcher, **{name: value}).check()
    assert set(job.notes.values()) == {transport}


def test_roles(run_ranks):
    assert len(run_ranks(4, "roles.py").check().notes) == 4


@pytest.mark.parametrize("hosts", ["1", "2"])
def test_a_checkpoint_is_loaded_on_another_number_of_ranks(run_ranks, tmp_path, hosts):
    folder = tmp_path / "checkpoint"
    launcher = {"1": "unisono", "2": "mpich"}[hosts]
    saved = run_ranks(3, "checkpoint.py", "save", str(folder), launcher=launcher, UNISONO_HOSTS=hosts)
    saved = saved.check().notes[0]
    loaded = run_ranks(2, "checkpoint.py", "load", str(folder)).check().notes[1]
    for one, other in zip(eval(saved), eval(loaded), strict=True):
        np.testing.assert_array_equal(one, other)
    next(folder.glob("*.safetensors")).write_bytes(b"not a table")
    job = run_ranks(2, "checkpoint.py", "load", str(folder))
    assert job.status != 0 and "load" in job.output


def test_a_killed_worker_is_restarted(run_ranks):
    job = run_ranks(2, "restart.py", restart=1).check()
    assert job.notes == {0: "0", 1: "1"}


def test_a_killed_worker_continues_from_the_clock(run_ranks):
    job = run_ranks(3, "restart_clock.py", restart=1).check()
    assert job.notes == {0: "0", 1: "1", 2: "0"}


def test_a_timeout_names_the_worker_that_is_missing(run_ranks):
    seen = json.loads(run_ranks(2, "table_trouble.py", "late").check().notes[0])
    assert seen["type"] == "Timeout" and seen["missing"] == [1], seen
    assert "get" in seen["message"] and "array-1" in seen["message"]


def test_creating_a_table_alone_names_the_table(run_ranks):
    # Also the timeout of init(): longer than one rank may need to start after the other.
    seen = json.loads(run_ranks(2, "table_trouble.py", "alone", UNISONO_TIMEOUT="6").check().notes[0])
    assert seen["type"] == "Timeout" and seen["missing"] == [1], seen
    assert 'making table "weights" #' in seen["message"], seen


def test_a_killed_worker_is_named_where_others_need_it(run_ranks):
    job = run_ranks(3, "table_trouble.py", "killed")
    assert job.status != 0
    for rank in (0, 1):
        seen = json.loads(job.notes[rank])
        assert seen["type"] == "PeerLost" and seen["lost"] == [2], seen


def test_different_tables_are_rejected_on_every_rank(run_ranks):
    notes = run_ranks(3, "table_trouble.py", "different").check().notes
    for rank in range(3):
        seen = json.loads(notes[rank])
        assert seen["type"] == "UsageError", seen
        assert "3 int32" in seen["message"] and "3 int64" in seen["message"]


def test_a_table_that_one_rank_rejects_is_an_error_on_all(run_ranks):
    notes = run_ranks(2, "table_trouble.py", "rejected").notes
    assert "did you mean `adagrad`" in json.loads(notes[1])["message"]
    assert json.loads(notes[0])["type"] in ("UsageError", "PeerLost"), notes[0]


def test_arguments_that_one_rank_rejects_are_an_error_for_all(run_ranks):
    assert run_ranks(3, "table_trouble.py", "arguments").check().notes == dict.fromkeys(range(3), "done")


def test_a_role_that_one_rank_misspells_is_an_error_for_all(run_ranks):
    notes = run_ranks(2, "table_trouble.py", "unknown-role").check().notes
    for rank in range(2):
        seen = json.loads(notes[rank])
        assert seen["type"] == "UsageError" and '"wrker"' in seen["message"], seen
        assert rank == 1 or "on rank 1" in seen["message"], seen


def test_a_failed_save_of_one_rank_is_the_same_error_on_all(run_ranks):
    notes = run_ranks(3, "table_trouble.py", "unsaved").check().notes
    for rank in range(3):
        seen = json.loads(notes[rank])
        assert seen["type"] == "IoError" and "table_trouble.py" in seen["message"], seen
        assert rank == 0 or "on rank 0" in seen["message"], seen


def test_errors_after_shutdown_do_not_suggest_init(run_ranks):
    notes = run_ranks(2, "table_trouble.py", "shutdown").check().notes
    for rank in range(2):
        message = json.loads(notes[rank])["message"]
        assert "only when all work is done" in message and "init()" not in message, message


def test_forked_children_do_not_affect_tables(run_ranks):
    run_ranks(2, "table_trouble.py", "fork").check()


@pytest.mark.parametrize("how", ["interrupted-get", "interrupted-making"])
def test_control_c_ends_a_wait(run_ranks, how):
    seen = json.loads(run_ranks(2, "table_trouble.py", how).check().notes[0])
    assert seen["type"] == "KeyboardInterrupt", seen


def test_a_program_that_raises_does_not_wait_for_its_adds(run_ranks):
    job = run_ranks(2, "table_trouble.py", "raises", UNISONO_TIMEOUT="1000")
    assert job.status != 0 and "no more pencils" in job.output
