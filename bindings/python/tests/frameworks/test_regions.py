"""Data sets whose samples are partitioned in space, on several ranks and with prefetching loaders."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="no PyTorch here: pip install torch")


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks(run_framework, tmp_path, ranks):
    random = np.random.default_rng(0)
    np.save(tmp_path / "images.npy", random.normal(size=(12, 3, 9, 10)).astype("float32"))
    np.save(tmp_path / "masks.npy", random.integers(0, 5, (12, 9, 10)))
    parts = ["orders", "mistakes", "training", *(["loaders"] if ranks != 3 else [])]
    run_framework(ranks, "regions.py", str(tmp_path), *parts, launcher="forked").check()
