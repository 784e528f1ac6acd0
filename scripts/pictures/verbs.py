"""The arrays of three ranks before and after each verb."""

from __future__ import annotations

from drawing import FAINT, GREY, RANKS, SUM, WIDTH, Drawing

LETTERS = "abc"
# The blocks of each rank before and after, named by their rank's letter and their index in its array.
# "S" combines all ranks, "a+b" some; "" is an array to be filled, and None a rank without an array.
Blocks = list[list[str] | None]
VERBS: list[tuple[str, Blocks, Blocks]] = [
    ("broadcast", [["a"], ["b"], ["c"]], [["a"], ["a"], ["a"]]),
    ("scatter", [["a0", "a1", "a2"], None, None], [["a0"], ["a1"], ["a2"]]),
    ("gather", [["a"], ["b"], ["c"]], [["a", "b", "c"], None, None]),
    ("all_gather", [["a"], ["b"], ["c"]], [["a", "b", "c"]] * 3),
    ("reduce", [["a"], ["b"], ["c"]], [["S"], ["b"], ["c"]]),
    ("all_reduce", [["a"], ["b"], ["c"]], [["S"]] * 3),
    (
        "reduce_scatter",
        [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["c0", "c1", "c2"]],
        [["S0"], ["S1"], ["S2"]],
    ),
    ("scan", [["a"], ["b"], ["c"]], [["a"], ["a+b"], ["S"]]),
    (
        "all_to_all",
        [["a0", "a1", "a2"], ["b0", "b1", "b2"], ["c0", "c1", "c2"]],
        [["a0", "b0", "c0"], ["a1", "b1", "c1"], ["a2", "b2", "c2"]],
    ),
    ("send, recv", [["a"], [""], None], [["a"], ["a"], None]),
]
SIDE, ROW = 24.0, 30.0
SMALL = str.maketrans("012S", "₀₁₂Σ")


def blocks(canvas: Drawing, x: float, y: float, of_ranks: Blocks) -> None:
    """Draws the blocks of each rank, one row per rank."""
    for rank, row in enumerate(of_ranks):
        top = y + rank * ROW
        if row is None:
            canvas.words(x + SIDE / 2, top + SIDE / 2, "-", 12, "middle", "#aab")
        for number, name in enumerate(row or []):
            is_sum = name.startswith("S") or "+" in name
            color = "white" if not name else SUM if is_sum else RANKS[LETTERS.index(name[0])]
            if not name:
                canvas.box(x + 1, top + 1, SIDE - 2, SIDE - 2, "white", "#aab 1")
                continue
            canvas.cell(
                x + number * SIDE, top, SIDE, color, name.translate(SMALL), "white" if is_sum else "#222"
            )


def draw() -> str:
    """Draws all verbs that move data, three per row."""
    wide, tall, gap = (WIDTH - 40) / 3, 148.0, 10.0
    bottom = -(-len(VERBS) // 3) * (tall + gap)
    canvas = Drawing(WIDTH, bottom + 50)
    for number, (name, before, after) in enumerate(VERBS):
        x, y = 10 + number % 3 * (wide + gap), 10 + number // 3 * (tall + gap)
        canvas.panel(x, y, wide, tall, FAINT)
        canvas.words(x + 14, y + 20, name, 15, bold=True)
        for rank in range(3):
            canvas.words(x + 14, y + 48 + rank * ROW + SIDE / 2, f"rank {rank}", 11, color=GREY)
        blocks(canvas, x + 62, y + 48, before)
        canvas.arrow((x + 146, y + 48 + ROW + SIDE / 2), (x + 172, y + 48 + ROW + SIDE / 2))
        blocks(canvas, x + 186, y + 48, after)
    below = bottom + 28
    for rank in range(3):
        canvas.box(16 + rank * 18, below - 8, 16, 16, RANKS[rank])
    canvas.words(80, below, "the rank that a value comes from; the root is rank 0", 12, color=GREY)
    canvas.cell(450, below - 10, 20, SUM, "Σ", "white")
    canvas.words(478, below, "sum, average, product, minimum or maximum over all ranks", 12, color=GREY)
    return canvas.svg()
