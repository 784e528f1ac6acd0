"""The shapes of the guide's pictures: the boxes of `grid.show()`, rounded boxes, lines and arrows."""

from __future__ import annotations

from xml.sax.saxutils import escape

from unisono.halo.picture import Canvas

RANKS = ["#8ecae6", "#ffb703", "#95d5b2", "#f4acb7"]
"""The colors of the first ranks, as in the pictures of halos."""
PALE = ["#dceff7", "#ffedc2", "#dff3e8", "#fce4e8"]
"""Paler variants, for parts that are not highlighted."""
SUM = "#6d6a8a"
"""The color of values combined from all ranks."""
INK, GREY, FAINT = "#222", "#667", "#f1f2f5"
WIDTH = 860.0
"""The width of a picture, which is that of a page."""

Point = tuple[float, float]


class Drawing(Canvas):
    """An image on a white background, for light and dark pages."""

    def _put(self, name: str, inside: str = "", **attributes: float | str) -> None:
        """Adds a shape; its attributes have hyphens where Python has underscores."""
        listed = "".join(
            f' {key.replace("_", "-")}="{value if isinstance(value, str) else format(value, ".6g")}"'
            for key, value in attributes.items()
        )
        self._shapes.append(f"<{name}{listed}>{inside}</{name}>" if inside else f"<{name}{listed}/>")

    def panel(
        self, x: float, y: float, width: float, height: float, fill: str = FAINT, radius: float = 8
    ) -> None:
        """Draws a box with round corners."""
        self._put("rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        anchor: str = "start",
        color: str = INK,
        bold: bool = False,
    ) -> None:
        """Writes a line of text whose vertical middle is at `y`."""
        weight = {"font_weight": "bold"} if bold else {}
        place = {"x": x, "y": y + size / 3}
        self._put("text", escape(text), **place, font_size=size, text_anchor=anchor, fill=color, **weight)

    def cell(self, x: float, y: float, side: float, fill: str, text: str, color: str = INK) -> None:
        """Draws one value: a square with a label."""
        self.box(x, y, side, side, fill, "white 2")
        self.words(x + side / 2, y + side / 2, text, side * 0.46, "middle", color)

    def line(self, points: list[Point], color: str = GREY) -> None:
        """Draws a line through points."""
        self._put("polyline", points=_path(points), fill="none", stroke=color, stroke_width=1.5)

    def arrow(self, start: Point, end: Point, color: str = GREY) -> None:
        """Draws a line with a head at its end."""
        (x, y), (across, down) = end, (end[0] - start[0], end[1] - start[1])
        length = (across**2 + down**2) ** 0.5
        across, down = across / length * 7, down / length * 7
        self.line([start, (x - across * 0.8, y - down * 0.8)], color)
        left = (x - across - down * 0.55, y - down + across * 0.55)
        right = (x - across + down * 0.55, y - down - across * 0.55)
        self._put("polygon", points=_path([end, left, right]), fill=color)


def _path(points: list[Point]) -> str:
    return " ".join(f"{x:.6g},{y:.6g}" for x, y in points)
