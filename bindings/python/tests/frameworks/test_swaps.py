"""PyTorch: the results of a background manager are taken over without a copy, and nothing is lost."""

import pytest

pytest.importorskip("torch", reason="no PyTorch here: pip install torch")

PARTS = ["naive", "settings", "changes", "failures", "models", "ends"]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_equal_a_computation_without_a_manager(run_framework, ranks):
    run_framework(ranks, "swaps.py", *PARTS, launcher="forked").check()
