"""Bars of all_reduce by this library and others, from the table of the performance page."""

from __future__ import annotations

import re
from pathlib import Path

from drawing import GREY, PALE, RANKS, WIDTH, Drawing

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/performance.md"
SECTION = "### Against other libraries"
# A row: ranks, length, and the minimum and the median of each column.
ROW = re.compile(r"^\| (\d+) \| ([\d.]+ \w+) \|((?: [\d.]+ / [\d.]+ \|){5})", re.MULTILINE)
NAMES = ["Unisono, arrays of uni.empty", "Unisono, other arrays", "MPICH", "Open MPI", "Gloo"]
COLORS = [RANKS[0], RANKS[0], *[PALE[1]] * 3]
LENGTHS = ["1 MB", "100 MB"]


def figures() -> dict[tuple[int, str], list[float]]:
    """Reads the minima in milliseconds, in the order of `NAMES`, by number of ranks and length."""
    section = PAGE.read_text().split(SECTION)[1].split("\n### ")[0]
    found = {}
    for ranks, length, cells in ROW.findall(section):
        private, arena, *others = (float(cell.split("/")[0]) for cell in cells.strip("| ").split("|"))
        found[int(ranks), length] = [arena, private, *others]
    return found


def draw() -> str:
    """Draws a chart for each number of ranks and each length, with a scale of its own."""
    shown = {key: times for key, times in figures().items() if key[1] in LENGTHS}
    left, right, row, strip = 220.0, 90.0, 22.0, 152.0
    canvas = Drawing(WIDTH, len(shown) * strip + 14)
    for number, ((ranks, length), times) in enumerate(shown.items()):
        top = 10 + number * strip
        canvas.words(14, top + 12, f"{ranks} ranks, {length}", 15, bold=True)
        canvas.words(left, top + 12, "milliseconds; shorter is faster", 12, color=GREY)
        for place, (name, time, color) in enumerate(zip(NAMES, times, COLORS, strict=True)):
            y = top + 28 + place * row
            length_of_bar = (WIDTH - left - right) * time / max(times)
            canvas.words(left - 12, y + row / 2, name, 12, "end", GREY)
            canvas.box(left, y + 2, length_of_bar, row - 4, color)
            canvas.words(left + length_of_bar + 8, y + row / 2, f"{time:g}", 12)
    return canvas.svg()
