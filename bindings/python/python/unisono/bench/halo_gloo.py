"""The halos of a padded array with torch.distributed's isend and irecv, as one would write them by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import unisono as uni


class GlooHalos:
    """Refreshes the halos of a padded array: rows, columns and corners, each with its own message.

    The last two dimensions are partitioned, and nothing is sent beyond the array. Buffers are reused.
    """

    def __init__(self, array: uni.GlobalArray, width: int, padded: Any) -> None:
        """Finds the neighbours.

        Args:
            array: The array, partitioned by the axes `h` and `w`.
            width: The width of the halo.
            padded: This rank's part with the halo around it.
        """
        grid = array.grid
        rows, columns = array.local_shape[-2:]
        here = grid.coordinates
        self._moves: list[tuple[int, Any, Any, Any, Any]] = []
        for down, right in product((-1, 0, 1), repeat=2):
            place = {"h": here["h"] + down, "w": here["w"] + right}
            inside = all(0 <= place[axis] < grid.axes[axis] for axis in place)
            if (down, right) == (0, 0) or not inside:
                continue
            # Sends the elements next to that edge; receives into the halo beyond it.
            mine = padded[..., _near(down, rows, width), _near(right, columns, width)]
            theirs = padded[..., _beyond(down, rows, width), _beyond(right, columns, width)]
            peer = grid.rank_at(**{**here, **place})
            self._moves.append((peer, mine, mine.contiguous(), theirs, theirs.contiguous()))

    def refresh(self) -> None:
        """One exchange."""
        import torch.distributed

        waiting = [torch.distributed.irecv(buffer, peer) for peer, _, _, _, buffer in self._moves]
        for peer, mine, buffer, _, _ in self._moves:
            buffer.copy_(mine)
            waiting.append(torch.distributed.isend(buffer, peer))
        for one in waiting:
            if one is not None:
                one.wait()
        for _, _, _, theirs, buffer in self._moves:
            theirs.copy_(buffer)


def _near(direction: int, length: int, width: int) -> slice:
    """The elements of a part at an edge; all of them along the edge."""
    return {-1: slice(width, 2 * width), 0: slice(width, width + length), 1: slice(length, width + length)}[
        direction
    ]


def _beyond(direction: int, length: int, width: int) -> slice:
    """The halo beyond that edge."""
    return {-1: slice(0, width), 0: slice(width, width + length), 1: slice(width + length, None)}[direction]
