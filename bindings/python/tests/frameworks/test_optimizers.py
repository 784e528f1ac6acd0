"""Updaters of tables match torch.optim."""

import pytest

pytest.importorskip("torch", reason="no PyTorch here: pip install torch")


def test_one_host(run_framework):
    run_framework(3, "optimizers.py", launcher="forked").check()


def test_between_hosts(run_framework):
    run_framework(2, "optimizers.py", launcher="mpich", UNISONO_HOSTS="2").check()
