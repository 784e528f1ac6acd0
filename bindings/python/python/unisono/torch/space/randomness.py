"""Random numbers independent of the partition: each rank takes its region of the global tensor's draw."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from unisono.errors import Unsupported
from unisono.halo import Grid
from unisono.torch.space.dispatch import Function, has_rule, name_of, parts_in, reject, rule
from unisono.torch.space.exchange_grid import exchange_grid
from unisono.torch.space.layout import Layout
from unisono.torch.space.part import Part, unwrap, wrap
from unisono.torch.space.passes import recomputed
from unisono.torch.space.streams import Fill, drawn

# Ranks that are threads share PyTorch's default generator: hold this lock to read or change it.
DEFAULT_GENERATOR = threading.Lock()


def devices(found: Iterable[torch.device]) -> tuple[torch.device, ...]:
    """The devices whose generators a call may draw from: the CPU, and those of its tensors.

    Args:
        found: The tensors' devices.

    Returns:
        Each device once, the CPU first.
    """
    return tuple(dict.fromkeys([torch.device("cpu"), *(one for one in found if one.type == "cuda")]))


def state_of(device: torch.device) -> torch.Tensor:
    """The state of a device's default generator.

    Args:
        device: The device.

    Returns:
        Bytes in host memory.
    """
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_state(device: torch.device, state: torch.Tensor) -> None:
    """Sets the state of a device's default generator.

    Args:
        device: The device.
        state: The value returned by `state_of`.
    """
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


class Draws:
    """The random numbers of one forward pass, if ranks are threads: those that rank 0 would draw."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._generators: dict[torch.device, torch.Generator] = {}

    def generator(self, device: torch.device) -> torch.Generator:
        """The generator that ranks share for a device; the first call is collective."""
        device = device if device.type == "cuda" else torch.device("cpu")
        if device not in self._generators:
            with DEFAULT_GENERATOR:
                state = state_of(device)
            exchange_grid(self._grid).group.broadcast(state)
            generator = torch.Generator(device)
            generator.set_state(state)
            self._generators[device] = generator
        return self._generators[device]

    def finish(self) -> None:
        """Advances PyTorch's default generators, which the ranks share, to the state reached here."""
        for device, generator in self._generators.items():
            if self._grid.rank == 0:
                # Other ranks may still be drawing from it in place of their default generator.
                with DEFAULT_GENERATOR:
                    set_state(device, generator.get_state())


@contextmanager
def drawing(
    grid: Grid, threads: bool, differ: bool, generators: Sequence[torch.device] = (torch.device("cpu"),)
) -> Iterator[None]:
    """Makes all ranks draw the same random numbers during a forward pass.

    Args:
        grid: The ranks.
        threads: Whether ranks are threads of one process.
        differ: Whether the generators of ranks that are processes differ.
        generators: The devices whose generators may be used.

    Yields:
        Nothing.
    """
    vars(grid)["_threads"] = threads
    if threads:
        draws = Draws(grid)
        vars(grid)["_draws"] = draws
        try:
            with _SharedDraws(grid):
                yield
        finally:
            vars(grid)["_draws"] = None
            draws.finish()
        return
    if not differ:
        yield
        return
    # The default generators themselves: checkpoints save their state.
    own = [state_of(device) for device in generators]
    common = [one.clone() for one in own]
    for device, state in zip(generators, common, strict=True):
        exchange_grid(grid).group.broadcast(state)
        set_state(device, state)
    try:
        yield
    finally:
        for device, before, state in zip(generators, own, common, strict=True):
            if torch.equal(state_of(device), state):
                set_state(device, before)


_RANDOM = """rand randn randint randperm normal bernoulli multinomial poisson binomial rand_like randn_like
randint_like dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout
gumbel_softmax rrelu fractional_max_pool2d fractional_max_pool3d scaled_dot_product_attention
multi_head_attention_forward normal_ uniform_ bernoulli_ random_ exponential_ geometric_ log_normal_
cauchy_ dropout_ rrelu_"""


class _SharedDraws(TorchFunctionMode):
    """Makes ranks that are threads draw the same plain tensors, too: they share the default generator."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self._grid = grid
        self._random = frozenset(_RANDOM.split())

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        # Rules for parts handle this themselves, and so do callers that pass a generator.
        ruled = has_rule(name) and next(parts_in(args, kwargs), None) is not None
        if name not in self._random or kwargs.get("generator") is not None or ruled:
            return func(*args, **kwargs)
        with as_default(self._grid, _device_of(args, kwargs)):
            return func(*args, **kwargs)


def _device_of(args: Any, kwargs: Any) -> torch.device:
    """The device on which a function draws: the given one, that of its tensors, or PyTorch's default."""
    if kwargs.get("device") is not None:
        return torch.empty(0, device=kwargs["device"]).device
    found = next((one for one in [*args, *kwargs.values()] if isinstance(one, torch.Tensor)), None)
    return torch.empty(0).device if found is None else found.device


def _draws(grid: Grid) -> Draws | None:
    draws: Draws | None = vars(grid).get("_draws")
    if draws is None and recomputed() and vars(grid).get("_threads"):
        raise Unsupported(
            "expected no random numbers in a checkpoint, received an operation that draws some, on ranks "
            "that are threads; use ranks that are processes"
        )
    return draws


@contextmanager
def as_default(grid: Grid, device: torch.device) -> Iterator[None]:
    """Makes operations that draw from PyTorch's default generator draw the numbers that all ranks share.

    Args:
        grid: The ranks.
        device: The device on which they compute.

    Yields:
        Nothing.
    """
    draws = _draws(grid)
    with _as_default(None if draws is None else draws.generator(device), device):
        yield


@contextmanager
def _as_default(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Makes operations on a device's default generator draw from this one; None is the default itself."""
    if generator is None:
        yield
        return
    with DEFAULT_GENERATOR:
        before = state_of(device)
        set_state(device, generator.get_state())
        try:
            yield
        finally:
            generator.set_state(state_of(device))
            set_state(device, before)


def generator_of(layout: Layout, device: torch.device) -> torch.Generator | None:
    """The generator that ranks share during a forward pass, if it is not the default one.

    Args:
        layout: A layout of the grid.
        device: The device on which numbers are drawn.

    Returns:
        The generator; None for the default one.
    """
    draws = _draws(layout.grid)
    return None if draws is None else draws.generator(device)


def _drawn(
    x: torch.Tensor, layout: Layout, shape: tuple[int, ...], keep: float, fused: bool = False
) -> torch.Tensor:
    """This rank's region of ones and zeros, drawn for the global tensor as one process would draw them."""
    if x.is_meta:
        return torch.empty([min(a, b) for a, b in zip(x.shape, shape, strict=True)], device="meta")
    region = [
        one if size == full else slice(0, size)
        for one, size, full in zip(layout.region, shape, layout.shape, strict=True)
    ]
    if tuple(shape) != layout.shape:
        # One number per channel: these are contiguous, even if the elements are not.
        x = x.new_empty(x.shape)
    if not (fused and x.is_cuda):
        return _filled("bernoulli_", x, layout, shape, region, None, keep)

    def fills(generator: torch.Generator | None) -> Fill:
        def fill(chunk: torch.Tensor) -> torch.Tensor:
            with _as_default(generator, x.device):
                return torch.native_dropout(chunk.fill_(1), 1 - keep, True)[1].to(x.dtype)

        return fill

    # On a device, dropout is one kernel, which draws in its own order.
    return drawn("native_dropout", fills, generator_of(layout, x.device), x, shape, region)


def _filled(
    name: str,
    x: torch.Tensor,
    layout: Layout,
    shape: Sequence[int],
    region: Sequence[slice],
    generator: torch.Generator | None,
    *args: Any,
    **options: Any,
) -> torch.Tensor:
    """This rank's region of what a method such as ``normal_`` would write to the global tensor."""
    method: Any = getattr(torch.Tensor, name)

    def fills(generator: torch.Generator | None) -> Fill:
        return lambda chunk: method(chunk, *args, generator=generator, **options)

    generator = generator_of(layout, x.device) if generator is None else generator
    return drawn(name, fills, generator, x, shape, region)


@rule("dropout", "dropout_", always=True)
def dropout(
    function: Function, input: Part, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Part:
    """Applies the mask of the global tensor."""
    return _dropped(input, p, training, input.place.shape, fused=True)


@rule("dropout1d", "dropout2d", "dropout3d", "feature_dropout", always=True)
def channels(
    function: Function, input: Part, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Part:
    """One draw for each channel of each sample."""
    batched = name_of(function) == "feature_dropout" or input.dim() == int(name_of(function)[7]) + 2
    front = 2 if batched else 1
    return _dropped(input, p, training, (*input.place.shape[:front], *[1] * (input.dim() - front)))


def _dropped(x: Part, p: float, training: bool, shape: tuple[int, ...], fused: bool = False) -> Part:
    if not training or p == 0 or x.placeholder:
        return x
    local = unwrap(x)
    if p == 1:
        return wrap(local * 0, x.place)
    mask = _drawn(local, x.place, shape, 1 - p, fused)
    return wrap(local * mask.div_(1 - p), x.place)


@rule("alpha_dropout", "feature_alpha_dropout", always=True)
def alpha(
    function: Function, input: Part, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Part:
    """Dropout to the value that keeps the mean and variance of a SELU network: Klambauer et al., 2017."""
    if not training or p == 0 or input.placeholder:
        return input
    shape = input.place.shape
    if name_of(function).startswith("feature"):
        shape = (*shape[:2], *[1] * (len(shape) - 2))
    local = unwrap(input)
    low = 1.7580993408473766
    scale = 1 / math.sqrt((low**2 * p + 1) * (1 - p)) if p < 1 else 0.0
    mask = _drawn(local, input.place, shape, 1 - p)
    return wrap(local * (mask * scale) + (mask - 1 + p) * (low * scale), input.place)


@rule("rrelu", "rrelu_", always=True)
def leaks(
    function: Function,
    input: Part,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Part:
    """A slope for each element below zero; without training, the mean of all slopes."""
    if training:
        reject("a rule for parts of a tensor for rrelu in training", "use leaky_relu, or rrelu in eval()")
    if input.placeholder:
        return input
    return wrap(function(unwrap(input), lower, upper, False, False), input.place)


_LIKE = {"rand_like": "uniform_", "randn_like": "normal_", "randint_like": "random_"}


@rule(*_LIKE, always=True)
def noise(
    function: Function,
    input: Part,
    *args: Any,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
    requires_grad: bool = False,
    **options: Any,
) -> Part:
    """Noise for each element of the global tensor."""
    local = unwrap(input)
    like = torch.empty_like(local, dtype=dtype)
    if local.is_meta:
        return wrap(like, input.place)
    name = _LIKE[name_of(function)]
    if name == "random_":
        bounds = [*args, *(options[key] for key in ("low", "high") if key in options)]
        args = (0, *bounds) if len(bounds) == 1 else tuple(bounds)
    made = _filled(name, like, input.place, input.place.shape, input.place.region, generator, *args)
    return wrap(made.requires_grad_(requires_grad), input.place)


_FILLS = """normal_ uniform_ bernoulli_ random_ exponential_ geometric_ log_normal_ cauchy_"""


@rule(*_FILLS.split(), always=True)
def fill(
    function: Function, input: Part, *args: Any, generator: torch.Generator | None = None, **options: Any
) -> Part:
    """Writes the global tensor's numbers in place."""
    if any(isinstance(one, torch.Tensor) for one in (*args, *options.values())):
        reject(f"a rule for parts of a tensor for {name_of(function)} with a tensor", "pass numbers")
    if input.placeholder:
        return input
    local, place = unwrap(input), input.place
    made = _filled(
        name_of(function), local.detach(), place, place.shape, place.region, generator, *args, **options
    )
    with torch.no_grad():
        local.copy_(made)
    return input


@rule("bernoulli", always=True)
def coins(
    function: Function, input: Part, p: float | None = None, *, generator: torch.Generator | None = None
) -> Part:
    """A one with each element's probability, or with one probability for all."""
    local, place = unwrap(input).detach(), input.place
    if input.placeholder:
        return input
    # The result is contiguous, even if the input is not.
    like = local.new_empty(local.shape)
    if p is not None:
        made = _filled("bernoulli_", like, place, place.shape, place.region, generator, p)
        return wrap(made, place)

    def fills(generator: torch.Generator | None) -> Fill:
        return lambda chunk: torch.bernoulli(chunk, generator=generator)

    generator = generator_of(place, local.device) if generator is None else generator
    return wrap(drawn("bernoulli", fills, generator, like, place.shape, place.region, local), place)
