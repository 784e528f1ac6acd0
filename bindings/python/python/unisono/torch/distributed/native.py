"""The optional C++ part of the backend, built with ``python -m unisono.torch.distributed.native``.

It makes frequent collectives without entering Python. PyTorch wraps what a backend written in Python returns
in an object that can only be waited for; the C++ part passes it on as it is, with completion, senders,
sequence numbers and profiler events. Once built for the installed PyTorch, all programs of this user use it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

from unisono.torch.distributed.versions import IS_GROUP, OLDEST_WITH_BACKENDS, version

_SOURCE = Path(__file__).with_name("native_backend.cpp")
_MODULE = "_unisono_torch"


def library() -> Path:
    """Where the C++ part for this version of PyTorch, Python and this package is kept.

    Returns:
        The path of the library, which may not exist.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:12]
    return (
        cache
        / "unisono"
        / f"torch-{torch.__version__}-{sys.implementation.cache_tag}-{digest}"
        / f"{_MODULE}.so"
    )


def load() -> Any | None:
    """Loads the C++ part.

    Returns:
        The module, or None if it was not built, or UNISONO_TORCH_NATIVE is 0, or PyTorch is too old.
    """
    if IS_GROUP or os.environ.get("UNISONO_TORCH_NATIVE") == "0" or not library().exists():
        return None
    spec = importlib.util.spec_from_file_location(_MODULE, library())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build() -> Path:
    """Builds the C++ part with the system's compiler, which CXX may name; it takes about a minute.

    Returns:
        The path of the library.

    Raises:
        RuntimeError: There is no compiler, or it failed, or PyTorch is too old.
    """
    if version() < OLDEST_WITH_BACKENDS:
        oldest = ".".join(map(str, OLDEST_WITH_BACKENDS))
        raise RuntimeError(
            f"unisono: the C++ part needs PyTorch {oldest} or newer, and this is {torch.__version__}, where "
            "calls report their completion and their senders without it"
        )
    target = library()
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(torch.__file__).parent
    made = target.with_suffix(f".{os.getpid()}.so")
    includes = [
        folder / "include",
        folder / "include/torch/csrc/api/include",
        sysconfig.get_paths()["include"],
    ]
    command = [
        *os.environ.get("CXX", "c++").split(),
        *("-O2", "-std=c++20", "-fPIC", "-shared", f"-DTORCH_EXTENSION_NAME={_MODULE}"),
        *(f"-isystem{path}" for path in includes),
        *(str(_SOURCE), f"-L{folder / 'lib'}", f"-Wl,-rpath,{folder / 'lib'}"),
        *("-ltorch", "-ltorch_cpu", "-ltorch_python", "-lc10", "-o", str(made)),
    ]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError(f"unisono: no C++ compiler {command[0]!r}; install one, or set CXX") from error
    if outcome.returncode != 0:
        raise RuntimeError(f"unisono: the C++ compiler failed:\n{outcome.stderr[-4000:]}")
    made.replace(target)
    return target


if __name__ == "__main__":
    print(build())
