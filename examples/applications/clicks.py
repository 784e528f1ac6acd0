"""Samples for click prediction: 13 numbers, 26 categories, and whether the user clicked.

Generated ones, whose categories follow Zipf's law, or those of a file in the format of Criteo's logs:
tab-separated lines of a label, 13 integers and 26 hexadecimal strings, of which some may be missing.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

NUMBERS, CATEGORIES = 13, 26
Samples = tuple[np.ndarray, np.ndarray, np.ndarray]


class Generated:
    """Clicks that depend on the numbers, on each category, and on pairs of categories.

    Args:
        rows: The number of ids of each category.
        seed: Another seed gives other samples of other users.
    """

    def __init__(self, rows: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.rows, self.seed = rows, seed
        self._slopes = random.standard_normal(NUMBERS) * 0.2
        self._effects = random.standard_normal((CATEGORIES, rows), dtype=np.float32) * 0.3
        self._tastes = random.standard_normal((3, 2, rows), dtype=np.float32) * 0.7

    def samples(self, batch: int, count: int) -> Samples:
        """The samples of a batch: equal numbers give equal samples, in any process."""
        random = np.random.default_rng((self.seed, batch))
        numbers = random.standard_normal((count, NUMBERS)).astype(np.float32)
        # The logarithms of ids are evenly distributed: the k-th id is drawn with a probability of about 1/k.
        ids = (self.rows + 1.0) ** random.random((count, CATEGORIES)) - 1.0
        ids = np.minimum(ids.astype(np.int64), self.rows - 1)
        score = numbers @ self._slopes - 1.0 + self._effects[np.arange(CATEGORIES), ids].sum(axis=1)
        for pair, (first, second) in enumerate(self._tastes):
            score += first[ids[:, 2 * pair]] * second[ids[:, 2 * pair + 1]]
        clicked = random.random(count) < 1 / (1 + np.exp(-score))
        return numbers, ids, clicked.astype(np.float32)


def read(path: Path, rows: int, count: int) -> Iterator[Samples]:
    """Reads batches of a file in Criteo's format; an incomplete batch at its end is left out.

    Args:
        path: The file.
        rows: The number of ids of each category; others are hashed to these.
        count: The number of samples in a batch.

    Yields:
        Numbers, of which logarithms are taken, ids, and clicks.
    """
    with path.open() as lines:
        for first in lines:
            batch = [one.rstrip("\n").split("\t") for one in (first, *islice(lines, count - 1))]
            if len(batch) < count:
                return
            wrong = next((one for one in batch if len(one) != 1 + NUMBERS + CATEGORIES), None)
            if wrong is not None:
                raise ValueError(
                    f"{path}: expected lines of {1 + NUMBERS + CATEGORIES} fields separated by tabs, "
                    f"received one of {len(wrong)}: {wrong[:3]}"
                )
            numbers = np.array(
                [[int(field or 0) for field in one[1 : 1 + NUMBERS]] for one in batch], np.float32
            )
            ids = np.array(
                [[int(field or "0", 16) for field in one[1 + NUMBERS :]] for one in batch], np.uint64
            )
            clicked = np.array([int(one[0]) for one in batch], np.float32)
            # Neighbouring hexadecimal numbers must not become neighbouring rows.
            ids = (ids * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
            yield np.log1p(np.maximum(numbers, 0)), (ids % np.uint64(rows)).astype(np.int64), clicked


def area_under_curve(scores: np.ndarray, clicked: np.ndarray) -> float:
    """The probability that a sample with a click has a higher score than one without; ties count half."""
    order = np.argsort(scores, kind="stable")
    _, starts, counts = np.unique(scores[order], return_index=True, return_counts=True)
    ranks = np.empty(len(scores))
    ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    positives = clicked.sum()
    return float(
        (ranks[clicked > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(scores) - positives))
    )
