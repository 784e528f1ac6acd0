"""Draws the ranks of a grid, the parts of an array, and a rank's halo."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, product

from unisono import _native
from unisono.errors import UsageError
from unisono.halo.global_array import GlobalArray
from unisono.halo.grid import Grid
from unisono.halo.picture import Canvas, Picture
from unisono.halo.window import Window

_COLORS = ["#8ecae6", "#ffb703", "#95d5b2", "#f4acb7", "#cdb4db", "#d4a373", "#a3b18a", "#ffd6a5"]
_PALE = ["#dceff7", "#ffedc2", "#dff3e8", "#fce4e8", "#efe6f3", "#f1e3d5", "#e1e6da", "#fff0dd"]
_SIDE = 360.0
_MARGIN = 56.0


def draw(grid: Grid, what: GlobalArray | Window | None, rank: int | None) -> Picture:
    """Draws a picture; see `Grid.show`.

    Args:
        grid: The ranks.
        what: An array, a window, or neither.
        rank: The rank whose halo is drawn.

    Returns:
        The picture.
    """
    if what is None:
        return _draw_grid(grid)
    array = what.input if isinstance(what, Window) else what
    if not isinstance(array, GlobalArray):
        raise UsageError(
            f"show: expected an array, a window over one, or nothing, received {type(what).__name__}; pass "
            "one of these"
        )
    if array.grid.axes != grid.axes:
        raise UsageError(
            f"show: expected something on the grid {grid}, received {what}; show it on its own grid"
        )
    if isinstance(what, Window):
        return _draw_window(what, _middle(grid) if rank is None else rank)
    return _draw_array(what)


def _middle(grid: Grid) -> int:
    """The rank with the most neighbours."""
    return grid.rank_at(**{axis: (size - 1) // 2 for axis, size in grid.axes.items()})


def _table(cells: list[list[str]], above: Sequence[str] = (), before: Sequence[str] = ()) -> str:
    width = max(len(cell) for row in [*cells, list(above)] for cell in row) + 2
    indent = max((len(one) for one in before), default=-1) + 1
    line = " " * indent + "+" + "+".join("-" * width for _ in cells[0]) + "+"
    lines = [" " * (indent + 1) + " ".join(one.center(width) for one in above)] if above else []
    for number, row in enumerate(cells):
        head = before[number].ljust(indent) if before else ""
        lines += [line, head + "|" + "|".join(cell.center(width) for cell in row) + "|"]
    return "\n".join(one.rstrip() for one in [*lines, line])


def _axes(grid: Grid) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in grid.axes.items())


def _draw_grid(grid: Grid) -> Picture:
    columns = list(grid.axes.values())[-1]
    rows = [list(range(start, start + columns)) for start in range(0, grid.size, columns)]
    side = min(72.0, _SIDE / max(columns, len(rows)))
    canvas = Canvas(columns * side + 20, len(rows) * side + 44)
    for y, row in enumerate(rows):
        for x, rank in enumerate(row):
            canvas.box(10 + x * side, 10 + y * side, side, side, _COLORS[rank % len(_COLORS)], "white 2")
            canvas.text(10 + (x + 0.5) * side, 10 + (y + 0.5) * side, str(rank), side / 3)
    canvas.text(10, len(rows) * side + 28, _axes(grid), anchor="start")
    text = _table([[str(rank) for rank in row] for row in rows]) + "\n" + _axes(grid)
    return Picture(canvas.svg(), text)


def _drawn(array: GlobalArray) -> list[int]:
    """The two dimensions of the picture (or the one): partitioned ones are preferred, then the last ones."""
    split = sorted(dim for axis, dim in array.split.items() if axis != "data") or sorted(array.split.values())
    if len(split) >= 2 or len(array.shape) == 1:
        return split[-2:] or [0]
    last = list(range(len(array.shape)))[-2:]
    return last if not split or split[0] in last else split


class _Frame:
    """Maps indices of the drawn dimensions to image coordinates."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.rows, self.columns = ranges if len(ranges) == 2 else ((0, 1), ranges[0])
        self.flat = len(ranges) == 1
        longest = max(self.rows[1] - self.rows[0], self.columns[1] - self.columns[0], 1)
        self.scale = _SIDE / longest
        self.width = (self.columns[1] - self.columns[0]) * self.scale
        self.height = 60.0 if self.flat else (self.rows[1] - self.rows[0]) * self.scale

    def canvas(self, lines: int) -> Canvas:
        return Canvas(max(self.width, 300) + _MARGIN + 16, self.height + _MARGIN + 12 + 20 * lines)

    def place(self, ranges: list[tuple[int, int]]) -> tuple[float, float, float, float]:
        rows, columns = ranges if len(ranges) == 2 else ((0, 1), ranges[0])
        step = self.height if self.flat else self.scale
        x, y = (
            _MARGIN + (columns[0] - self.columns[0]) * self.scale,
            _MARGIN + (rows[0] - self.rows[0]) * step,
        )
        return x, y, (columns[1] - columns[0]) * self.scale, (rows[1] - rows[0]) * step


def _slice(array: GlobalArray, dims: list[int], near: int) -> list[int]:
    """The ranks in the picture: those with the coordinates of `near` on the axes that it does not show."""
    shown = {axis for axis, dim in array.split.items() if dim in dims}
    here = array.grid.coordinates_of(near)

    def is_shown(rank: int) -> bool:
        place = array.grid.coordinates_of(rank)
        return all(axis in shown or place[axis] == here[axis] for axis in here)

    return [rank for rank in range(array.grid.size) if is_shown(rank)]


def _part(array: GlobalArray, dims: list[int], rank: int) -> list[tuple[int, int]]:
    region = array.region_of(rank)
    return [(region[dim].start, region[dim].stop) for dim in dims]


def _draw_parts(
    canvas: Canvas, frame: _Frame, array: GlobalArray, dims: list[int], near: int, pale: bool
) -> None:
    colors = _PALE if pale else _COLORS
    rows, columns = set(), set()
    for rank in _slice(array, dims, near):
        part = _part(array, dims, rank)
        x, y, width, height = frame.place(part)
        if width * height == 0:
            continue
        canvas.box(x, y, width, height, colors[rank % len(colors)], "white 2")
        if not pale:
            canvas.text(x + width / 2, y + height / 2, str(rank), min(28, height / 2, width / 2))
        columns.add(part[-1])
        rows.add(part[0])
    for start, stop in sorted(columns):
        x, _, width, _ = frame.place([frame.rows, (start, stop)])
        canvas.text(x + width / 2, _MARGIN / 2, f"{start}:{stop}", 12)
    for start, stop in sorted(rows) if len(dims) == 2 else []:
        _, y, _, height = frame.place([(start, stop), frame.columns])
        canvas.text(_MARGIN - 8, y + height / 2, f"{start}:{stop}", 12, "end")


def _draw_array(array: GlobalArray) -> Picture:
    dims = _drawn(array)
    frame = _Frame([(0, array.shape[dim]) for dim in dims])
    canvas = frame.canvas(1)
    _draw_parts(canvas, frame, array, dims, 0, pale=False)
    words = f"{array.shape} on {_axes(array.grid)}"
    canvas.text(_MARGIN, frame.height + _MARGIN + 18, words, anchor="start")
    ranks = _slice(array, dims, 0)
    parts = [_part(array, dims, rank) for rank in ranks]
    columns = list(dict.fromkeys(part[-1] for part in parts))
    rows = [
        [str(rank) for rank, part in group]
        for _, group in groupby(
            zip(ranks, parts, strict=True), key=lambda pair: pair[1][0] if len(dims) == 2 else 0
        )
    ]
    heads = list(dict.fromkeys(f"{part[0][0]}:{part[0][1]}" for part in parts)) if len(dims) == 2 else []
    if len(rows) != len(heads) or any(len(row) != len(columns) for row in rows):
        columns, heads = [], []  # empty parts have no position of their own
    above = [f"{start}:{stop}" for start, stop in columns]
    return Picture(canvas.svg(), _table(rows, above, heads) + "\n" + words)


def _runs(window: Window, dim: int, needed: tuple[int, int]) -> list[tuple[tuple[int, int], int | None]]:
    """Runs of positions with one owner: the range, and the owner's coordinate on the dimension's axis."""
    length, edges = window.input.shape[dim], window.edges[dim]
    axis = next((axis for axis, divided in window.input.split.items() if divided == dim), None)
    ends = (
        [sum(window.input.sizes[axis][: part + 1]) for part in range(window.input.grid.axes[axis])]
        if axis
        else []
    )

    def origin(position: int) -> int | None:
        index = _native.boundary_source(position, length, *edges)
        return None if index is None else next((part for part, end in enumerate(ends) if index < end), 0)

    runs = []
    for place, positions in groupby(range(*needed), key=lambda at: (origin(at), 0 <= at < length)):
        run = list(positions)
        runs.append(((run[0], run[-1] + 1), place[0]))
    return runs


def _draw_window(window: Window, rank: int) -> Picture:
    array, grid = window.input, window.input.grid
    dims, here = _drawn(array), grid.coordinates_of(rank)
    needed = [window.needed_by(rank)[dim] for dim in dims]
    ends = [
        (min(0, start), max(array.shape[dim], stop)) for dim, (start, stop) in zip(dims, needed, strict=True)
    ]
    frame = _Frame(ends)
    canvas = frame.canvas(2)
    _draw_parts(canvas, frame, array, dims, rank, pale=True)
    axes = {dim: axis for axis, dim in array.split.items()}
    for boxes in product(*(_runs(window, dim, need) for dim, need in zip(dims, needed, strict=True))):
        x, y, width, height = frame.place([box for box, _ in boxes])
        place = dict(here)
        place.update(
            {
                axes[dim]: part
                for dim, (_, part) in zip(dims, boxes, strict=True)
                if dim in axes and part is not None
            }
        )
        constant = any(part is None for _, part in boxes)
        owner = grid.rank_at(**place)
        canvas.box(x, y, width, height, "url(#hatch)" if constant else _COLORS[owner % len(_COLORS)])
    for other in _slice(array, dims, rank):
        x, y, width, height = frame.place(_part(array, dims, other))
        if width * height:
            canvas.text(x + width / 2, y + height / 2, str(other), min(28, height / 2, width / 2))
    canvas.box(*frame.place(_part(array, dims, rank)), "none", "black 1.5")
    canvas.box(*frame.place(needed), "none", "black 2.5")
    text = _describe(window, rank)
    for number, line in enumerate(text.split("\n")[:2]):
        canvas.text(_MARGIN, frame.height + _MARGIN + 18 + 20 * number, line, 12, "start")
    return Picture(canvas.svg(), text)


def _describe(window: Window, rank: int) -> str:
    """Describes in text what a rank has, needs and receives."""
    plan = window._plan_of(rank)

    def box(ranges: Sequence[tuple[int, int]]) -> str:
        return "[" + ", ".join(f"{start}:{stop}" for start, stop in ranges) + "]"

    sources = [f"{elements} from rank {other}" for other, elements in plan.sources] or ["nothing from others"]
    return f"rank {rank} has {box(plan.own)} and needs {box(plan.needed)}:\n{', '.join(sources)}"
