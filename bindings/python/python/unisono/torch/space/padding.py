"""Padding: the boundary of an exchange, and cropping where padding is negative."""

from __future__ import annotations

from collections.abc import Sequence

from unisono.errors import UsageError
from unisono.torch.space.cutting import cropped
from unisono.torch.space.dispatch import Function, reject, rule
from unisono.torch.space.part import Part, unwrap, wrap
from unisono.torch.space.windows import padded

_BOUNDARIES = {"constant": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "periodic"}


@rule("pad")
def pad(
    function: Function, input: Part, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Part:
    """Each rank gets its part of the padded global tensor."""
    if mode not in _BOUNDARIES:
        reject(f"a rule for parts of a tensor for pad with mode={mode!r}")
    x, count = input, input.dim()
    pairs = {
        count - 1 - place: (int(pad[2 * place]), int(pad[2 * place + 1])) for place in range(len(pad) // 2)
    }
    for dim, pair in pairs.items():
        longest = {"reflect": x.shape[dim] - 1, "circular": x.shape[dim]}.get(mode)
        if longest is not None and max(pair) > longest:
            raise UsageError(
                f"{mode} padding: expected at most {longest} elements on each side of {x.shape[dim]}, "
                f"received {pair}; pad less, or in two steps"
            )
    removed = {
        dim: (max(0, -before), x.shape[dim] - max(0, -after))
        for dim, (before, after) in pairs.items()
        if min(before, after) < 0
    }
    x = cropped(x, removed) if removed else x
    added = {dim: (max(0, before), max(0, after)) for dim, (before, after) in pairs.items()}
    dims = sorted(dim for dim, pair in added.items() if any(pair))
    if not dims:
        return x
    window = x.array.window(
        kernel=[1] * len(dims),
        padding=[added[dim] for dim in dims],
        boundary=float(value or 0) if mode == "constant" else _BOUNDARIES[mode],
        dims=dims,
    )
    return wrap(padded(unwrap(x), window), x.place.resized(window.output.shape))
