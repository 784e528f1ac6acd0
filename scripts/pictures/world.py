"""An overview: tables, functions and halos over one world of ranks."""

from __future__ import annotations

from drawing import FAINT, GREY, PALE, RANKS, SUM, WIDTH, Drawing

GAP = 14.0
WIDE = (WIDTH - 4 * GAP) / 3
TALL = 250.0


def worker(canvas: Drawing, x: float, y: float, rank: int, side: float = 34) -> None:
    """Draws a rank."""
    canvas.panel(x, y, side, side, RANKS[rank], 6)
    canvas.words(x + side / 2, y + side / 2, str(rank), 15, "middle")


def tables(canvas: Drawing, x: float, y: float) -> None:
    """Draws four workers that get rows of a table and add to them."""
    left, top, columns = x + 41, y + 66, 6
    touched = {0: 1, 1: 0, 3: 2, 4: 3}
    for row in range(5):
        for column in range(columns):
            fill = RANKS[touched[row]] if row in touched else "#d9dce4"
            canvas.box(left + column * 30, top + row * 16, 30, 16, fill, "white 2")
    for rank in range(4):
        at = left + 3 + rank * 47
        worker(canvas, at, y + 200, rank)
        canvas.arrow((at + 11, top + 86), (at + 11, y + 196))
        canvas.arrow((at + 23, y + 196), (at + 23, top + 86))
    canvas.words(left - 8, y + 173, "get", 12, "end", GREY)
    canvas.words(left + 6 * 30 + 8, y + 173, "add", 12, color=GREY)


def functions(canvas: Drawing, x: float, y: float) -> None:
    """Draws a master's call: workers get the rows of a batch, and the master gets one result."""
    middle = x + WIDE / 2
    canvas.panel(x + 20, y + 66, 92, 34, "white", 6)
    canvas.words(x + 66, y + 83, "f(x)", 16, "middle", bold=True)
    canvas.panel(x + WIDE - 116, y + 66, 78, 34, SUM, 6)
    canvas.words(x + WIDE - 77, y + 83, "result", 14, "middle", "white")
    for rank in range(4):
        at = middle - 92 + rank * 50
        canvas.box(at - 2, y + 134, 38, 18, PALE[rank], "white 1")
        canvas.words(at + 17, y + 143, f"x{'₀₁₂₃'[rank]}", 12, "middle")
        canvas.arrow((x + 66, y + 102), (at + 17, y + 131))
        worker(canvas, at, y + 156, rank)
        canvas.line([(at + 17, y + 192), (at + 17, y + 212)])
    right = x + WIDE - 14
    canvas.line([(middle - 75, y + 212), (right, y + 212), (right, y + 83)])
    canvas.arrow((right, y + 83), (right - 22, y + 83))
    canvas.words(middle, y + 228, "sum, mean, rows, …", 12, "middle", GREY)


def halos(canvas: Drawing, x: float, y: float) -> None:
    """Draws an image on 2 by 2 ranks: rank 0's part, and its halo from the others."""
    side, halo = 82.0, 20.0
    left, top = x + (WIDE - 2 * side) / 2, y + 68
    for rank in range(4):
        canvas.box(left + rank % 2 * side, top + rank // 2 * side, side, side, PALE[rank], "white 2")
    canvas.box(left, top, side, side, RANKS[0])
    canvas.box(left + side, top, halo, side, RANKS[1])
    canvas.box(left, top + side, side, halo, RANKS[2])
    canvas.box(left + side, top + side, halo, halo, RANKS[3])
    for rank in range(4):
        # Next to the halo, if there is one.
        across, down = rank % 2 * (side + 6), rank // 2 * (side + 6)
        canvas.words(left + across + side / 2, top + down + side / 2, str(rank), 20, "middle")
    canvas.box(left, top, side, side, "none", "#222 1.5")
    canvas.box(left, top, side + halo, side + halo, "none", "#222 2.5")
    canvas.arrow((left + side + 40, top + 18), (left + side + 6, top + 18), "#222")
    canvas.arrow((left + 18, top + side + 40), (left + 18, top + side + 6), "#222")


def draw() -> str:
    """Draws three columns on a common base."""
    canvas = Drawing(WIDTH, TALL + 190)
    parts = [
        ("Tables", "share parameters", tables),
        ("Functions", "split the batch", functions),
        ("Halos", "split space", halos),
    ]
    for number, (name, about, paint) in enumerate(parts):
        x, y = GAP + number * (WIDE + GAP), GAP
        canvas.panel(x, y, WIDE, TALL)
        canvas.words(x + 18, y + 24, name, 19, bold=True)
        canvas.words(x + 18, y + 46, about, 13, color=GREY)
        paint(canvas, x, y)
    y = TALL + 2 * GAP
    canvas.panel(GAP, y, WIDTH - 2 * GAP, 40, "#e3e5ee")
    canvas.words(GAP + 18, y + 20, "Collectives", 16, bold=True)
    verbs = "broadcast  ·  all_gather  ·  all_reduce  ·  all_to_all  ·  …  the same bits on every rank"
    canvas.words(WIDTH - GAP - 18, y + 20, verbs, 13, "end", GREY)
    y += 40 + GAP / 2
    canvas.panel(GAP, y, WIDTH - 2 * GAP, 54, "#d5d8e6")
    canvas.words(GAP + 18, y + 27, "World", 16, bold=True)
    for rank in range(4):
        worker(canvas, 130 + rank * 44, y + 10, rank)
    canvas.words(130 + 4 * 44 + 4, y + 27, "…", 18)
    canvas.words(WIDTH - GAP - 18, y + 27, "processes or threads, under any launcher", 13, "end", GREY)
    y += 54 + GAP / 2
    ways = ["shared memory on a host", "MPI between hosts", "CUDA on devices"]
    for number, way in enumerate(ways):
        canvas.panel(GAP + number * (WIDE + GAP), y, WIDE, 34, FAINT)
        canvas.words(GAP + number * (WIDE + GAP) + WIDE / 2, y + 17, way, 13, "middle", GREY)
    return canvas.svg()
