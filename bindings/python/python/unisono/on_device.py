"""New arrays on a CUDA device, made by the library that the caller uses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from unisono.errors import Unsupported

Make = Callable[[str, tuple[int, ...]], Any]
"""Makes an uninitialized array of an element type and a shape."""


def maker(like: Any | None, ordinal: int) -> Make:
    """Returns a function that makes arrays like another one: in its library, on its device and stream.

    Args:
        like: The array; without one, the first library that the program has imported is used.
        ordinal: The device.

    Returns:
        A function that makes arrays, on any thread.
    """
    return ordered_maker(like, ordinal)[0]


def ordered_maker(like: Any | None, ordinal: int) -> tuple[Make, int | None]:
    """As `maker`, and the stream whose work so far must precede the use of a new array.

    Args:
        like: As for `maker`.
        ordinal: As for `maker`.

    Returns:
        A function that makes arrays, and the driver's handle of the stream; None if new arrays may be used
        at once.
    """
    library = _imported() if like is None else type(like).__module__.partition(".")[0]
    if library not in _MAKERS and _is_torch(like):
        library = "torch"  # a subclass of its tensors
    # CUDA arrays of a library that cannot make arrays get CuPy's, which accepts them as well.
    return _MAKERS.get(library, _cupy)(ordinal, like)


def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Calls a function. Native code calls through this one, which is excluded from ``torch.compile``.

    Args:
        function: The function.
        arguments: Its arguments.

    Returns:
        The function's result.
    """
    return function(*arguments)


def folders() -> list[str]:
    """The folders in which packages that frameworks depend on keep NVIDIA's libraries.

    Returns:
        The folders.
    """
    return [str(folder) for root in sys.path for folder in sorted(Path(root).glob("nvidia/*/lib"))]


def current() -> int:
    """The current device of the program's library.

    Returns:
        Its CUDA ordinal in this process.
    """
    library = sys.modules.get(_imported())
    if library is None:
        raise Unsupported(
            "no library that makes arrays in CUDA memory is imported; import torch, cupy or jax"
        )
    if library.__name__ == "torch":
        if not library.cuda.is_available():
            raise Unsupported("PyTorch sees no CUDA device here; `unisono doctor` shows what is missing")
        return int(library.cuda.current_device())
    return int(library.cuda.Device().id) if library.__name__ == "cupy" else 0


def _imported() -> str:
    return next((name for name in _MAKERS if name in sys.modules), "")


def _is_torch(like: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(like, torch.Tensor)


def _torch(ordinal: int, like: Any) -> tuple[Make, int | None]:
    import torch

    device = torch.device("cuda", ordinal)
    stream = torch.cuda.current_stream(device)

    def make(dtype: str, shape: tuple[int, ...]) -> Any:
        # The allocator orders memory by the stream for which it was allocated.
        with torch.cuda.stream(stream):
            return torch.empty(shape, dtype=getattr(torch, dtype), device=device)

    return make, int(stream.cuda_stream)


def _cupy(ordinal: int, like: Any) -> tuple[Make, int | None]:
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError:
        return _failing_maker(type(like).__name__), None

    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.get_current_stream()

    def make(dtype: str, shape: tuple[int, ...]) -> Any:
        with cupy.cuda.Device(ordinal), stream or nullcontext():
            return cupy.empty(shape, dtype=_numpy_type(dtype))

    return make, int(stream.ptr)


def _failing_maker(kind: str) -> Make:
    """Fails only if called: calls that return no new array need no library that makes one."""

    def make(dtype: str, shape: tuple[int, ...]) -> Any:
        raise Unsupported(f"a result beside an array of type {kind} is made by CuPy; pip install cupy")

    return make


def _jax(ordinal: int, like: Any) -> tuple[Make, int | None]:
    import jax

    device = like.device if like is not None else jax.local_devices()[ordinal]

    def make(dtype: str, shape: tuple[int, ...]) -> Any:
        return jax.numpy.empty(shape, dtype=_numpy_type(dtype), device=device).block_until_ready()

    return make, None


def _numpy_type(name: str) -> Any:
    from unisono.arrays import extension_type, is_extension

    return extension_type(name) if is_extension(name) else name


_MAKERS = {"torch": _torch, "cupy": _cupy, "jaxlib": _jax, "jax": _jax}
