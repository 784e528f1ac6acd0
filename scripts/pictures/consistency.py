"""A timeline of three workers of different speed, computing and waiting, with `async`, `ssp` and `bsp`."""

from __future__ import annotations

from drawing import GREY, RANKS, WIDTH, Drawing

# The duration of each worker's step, and the end of the time axis.
STEPS = [1.0, 1.5, 2.5]
END = 13.0
KINDS = [
    ("async", None, "no worker waits; the fastest runs ahead"),
    ("ssp:2", 2, "a worker waits when the slowest is more than 2 steps behind it"),
    ("bsp", 0, "every round waits for the slowest worker"),
]
Span = tuple[float, float]


def schedule(bound: int | None) -> list[list[Span]]:
    """Computes when steps run: a step begins when its worker is free and the slowest is within the bound."""
    ended: list[list[float]] = [[] for _ in STEPS]
    spans: list[list[Span]] = [[] for _ in STEPS]
    count = int(END / min(STEPS)) + 2
    for step in range(count):
        for worker, duration in enumerate(STEPS):
            free = ended[worker][-1] if step else 0.0
            # Before step n, every worker must have completed n - bound steps.
            needed = step - bound if bound is not None else 0
            others = [times[needed - 1] for times in ended] if needed > 0 else []
            begin = max([free, *others])
            spans[worker].append((begin, begin + duration))
            ended[worker].append(begin + duration)
    return spans


def draw() -> str:
    """Draws the three kinds, one below the other, on one time axis."""
    left, right, row, strip = 96.0, 84.0, 24.0, 132.0
    scale = (WIDTH - left - right) / END
    canvas = Drawing(WIDTH, len(KINDS) * strip + 40)
    for number, (name, bound, about) in enumerate(KINDS):
        top = 10 + number * strip
        canvas.words(14, top + 12, name, 15, bold=True)
        canvas.words(left, top + 12, about, 12, color=GREY)
        for worker, spans in enumerate(schedule(bound)):
            y = top + 28 + worker * (row + 5)
            canvas.words(left - 12, y + row / 2, f"worker {worker}", 12, "end", GREY)
            reached, done = 0.0, 0
            for step, (begin, end) in enumerate(spans, 1):
                if reached < begin:
                    until = min(begin, END)
                    canvas.box(left + reached * scale, y, (until - reached) * scale, row, "url(#hatch)")
                reached = min(end, END)
                if begin >= END:
                    break
                canvas.box(left + begin * scale, y, (reached - begin) * scale, row, RANKS[worker], "white 2")
                if end <= END:
                    done = step
                    canvas.text(left + (begin + end) / 2 * scale, y + row / 2, str(step), 12)
            canvas.words(WIDTH - right + 10, y + row / 2, f"{done} steps", 12, color=GREY)
    y = len(KINDS) * strip + 14
    canvas.arrow((left, y), (WIDTH - right, y))
    canvas.words(WIDTH - right + 10, y, "time", 12, color=GREY)
    canvas.box(left, y + 10, 24, 12, "url(#hatch)", "#999 1")
    canvas.words(left + 32, y + 16, "waits in get", 12, color=GREY)
    return canvas.svg()
