"""A picture that needs no plotting library: an image in a notebook, text in a terminal, a file."""

from __future__ import annotations

import os
from pathlib import Path
from xml.sax.saxutils import escape


class Picture:
    """The result of `Grid.show`.

    Example:
        >>> import unisono as uni
        >>> with uni.local_grid(h=1, w=2) as grid:
        ...     picture = grid.show()
        >>> picture.svg[:4]
        '<svg'
    """

    def __init__(self, svg: str, text: str) -> None:
        self.svg: str = svg
        """The image, as SVG."""
        self.text: str = text
        """The same picture as text."""

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return self.text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image to a file.

        Args:
            path: The file name, which should end in ``.svg``.
        """
        Path(path).write_text(self.svg)


class Canvas:
    """The shapes of an image, in drawing order."""

    def __init__(self, width: float, height: float) -> None:
        self._size = (width, height)
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, edge: str = "none") -> None:
        """Draws a rectangle.

        Args:
            x: Its left edge.
            y: Its upper edge.
            width: Its width.
            height: Its height.
            fill: Its color.
            edge: The color and width of its outline, such as ``"black 2"``.
        """
        color, _, thickness = edge.partition(" ")
        self._shapes.append(
            f'<rect x="{x:.6g}" y="{y:.6g}" width="{width:.6g}" height="{height:.6g}" fill="{fill}" '
            f'stroke="{color}" stroke-width="{thickness or 1}"/>'
        )

    def text(self, x: float, y: float, words: str, size: float = 13, anchor: str = "middle") -> None:
        """Writes a line of text.

        Args:
            x: The anchor.
            y: Its middle.
            words: The text.
            size: The font size.
            anchor: The part of the text that is at `x`: "start", "middle" or "end".
        """
        self._shapes.append(
            f'<text x="{x:.6g}" y="{y + size / 3:.6g}" font-size="{size:.6g}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def svg(self) -> str:
        """The image.

        Returns:
            SVG, one shape per line.
        """
        width, height = (f"{extent:.6g}" for extent in self._size)
        hatch = (
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><rect width="6" height="6" fill="white"/>'
            '<line x1="0" y1="0" x2="0" y2="6" stroke="#999" stroke-width="2"/></pattern></defs>'
        )
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif">'
        )
        white = f'<rect width="{width}" height="{height}" fill="white"/>'
        return "\n".join([head, hatch, white, *self._shapes, "</svg>"]) + "\n"
