"""PyTorch: gradients, wrappers and parameters between workers equal one worker's."""

import pytest

pytest.importorskip("torch", reason="no PyTorch here: pip install torch")

PARTS = [
    "curves",
    "uneven",
    "wrong_weights",
    "unused",
    "accumulation",
    "states",
    "copies",
    "tied",
    "types",
    "kinds",
    "checkpoints",
    "changed",
    "rejected",
    "unequal",
    "sampler",
    "late",
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks(run_framework, ranks):
    run_framework(ranks, "pytorch.py", *PARTS, launcher="forked").check()


def test_compiled(run_framework):
    run_framework(2, "torch_compiled.py", "embedded", "ours", "theirs", "step", launcher="forked").check()


def test_torchrun(run_framework):
    run_framework(2, "pytorch.py", "curves", "sampler", launcher="torchrun").check()


def test_roles(run_framework):
    run_framework(3, "torch_roles.py").check()


ARGUMENTS = [
    "arguments",
    "groups",
    "devices",
    "unsynced",
    "passes",
    "after_join",
    "join_states",
    "join_without_gradients",
    "join_and_accumulation",
    "early",
    "unsuited",
    "moves",
    "buffers",
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_arguments_of_the_wrapper(run_framework, ranks):
    run_framework(ranks, "ddp_arguments.py", *ARGUMENTS, launcher="forked").check()
