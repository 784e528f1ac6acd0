"""Passes over a model's values, in pieces that stay in the processor's cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unisono.parameters.adapter import Values

# Elements at a time: three arrays of float32 together fit a second-level cache.
PIECE = 1 << 15


def change(now: Values, before: Values, out: Values) -> None:
    """Writes ``now - before`` to `out`.

    Args:
        now: A parameter's values, of any float type.
        before: Values of the table's type.
        out: Where the difference goes, of the table's type.
    """
    np.subtract(now, before, out=out, casting="same_kind")


def carry(now: Values, start: Values, got: Values) -> None:
    """Carries what the model changed while an exchange ran over to what the exchange brought.

    Args:
        now: The model's values; only read.
        start: Its values when the exchange began; becomes the change since then.
        got: What the exchange brought; becomes that plus the change.
    """
    for now_piece, start_piece, got_piece in _pieces(now, start, got):
        np.subtract(now_piece, start_piece, out=start_piece, casting="same_kind")
        np.add(got_piece, start_piece, out=got_piece)


def _pieces(*arrays: Values) -> Iterator[list[Values]]:
    """The same pieces of several arrays, as views."""
    if not all(array.flags.c_contiguous for array in arrays):
        yield list(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    for begin in range(0, flat[0].size, PIECE):
        yield [array[begin : begin + PIECE] for array in flat]
