"""Embeddings in tables equal PyTorch's with the equivalent optimizer, on one worker and on several."""

import pytest

pytest.importorskip("torch", reason="no PyTorch here: pip install torch")

PARTS = [
    "optimizers",
    "lookups",
    "bags",
    "empty_batches",
    "in_a_model",
    "used_twice",
    "nested",
    "nested_failures",
    "checkpointed",
    "overwritten",
    "graphs",
    "threads",
    "scaled",
    "accumulated",
    "prefetched",
    "prefetched_and_reused",
    "unbounded",
    "unbounded_passes",
    "types",
    "scheduled",
    "rejected",
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks(run_framework, ranks):
    run_framework(ranks, "embeddings.py", *PARTS, launcher="forked").check()
