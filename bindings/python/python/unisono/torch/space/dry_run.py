"""A dry run of a module without data, which finds operations without a rule before any communication."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import torch

from unisono.errors import Error, Unsupported, UsageError
from unisono.halo import Grid
from unisono.torch.space.dispatch import replaced
from unisono.torch.space.inputs import Inputs
from unisono.torch.space.meta_copy import meta_copy
from unisono.torch.space.part import Part, unwrap, wrap
from unisono.torch.space.passes import passing
from unisono.torch.space.randomness import DEFAULT_GENERATOR


def run_without_data(module: torch.nn.Module, inputs: Inputs, grid: Grid) -> bool:
    """Runs a copy of the module on tensors that have shapes but no elements.

    Args:
        module: The module; it is not changed.
        inputs: The inputs of the call to come.
        grid: The ranks.

    Returns:
        Whether the run completed; some operations of modules need data.

    Raises:
        Error: An error of this package, with the layer and the rank; other errors are left to the real pass.
    """
    for name, one in module.named_parameters():
        if one.is_meta:
            raise UsageError(
                f"rank {grid.rank}: spatial: expected parameters with elements, received {name} on the "
                "device meta; load them first"
            )
    walked = meta_copy(module)
    args, kwargs = replaced((inputs.args, inputs.kwargs), _empty, lambda one: one.detach().to("meta"))
    learns = torch.is_grad_enabled()
    with DEFAULT_GENERATOR:
        before = torch.get_rng_state()
        try:
            with torch.no_grad(), torch.device("meta"), passing(grid, learns):
                walked(*args, **kwargs)
        except Error as error:
            raise named(error, walked, grid) from error
        except Exception:
            # Operations that need data, and errors that have nothing to do with parts.
            return False
        finally:
            if not torch.equal(before, torch.get_rng_state()):
                torch.set_rng_state(before)
    return True


def _empty(one: Part) -> Part:
    return wrap(unwrap(one).detach().to("meta"), one.place, one.flat)


def named(error: Error, module: torch.nn.Module, grid: Grid) -> Error:
    """The same error, with the layer in which it was raised.

    Args:
        error: The error.
        module: The module.
        grid: The ranks.

    Returns:
        A new error.
    """
    name, layer = where(error.__traceback__, module)
    what = f"layer {name!r} ({type(layer).__name__})" if name else type(layer).__name__
    words = str(error)
    prefix = f"rank {grid.rank}: "
    if words.startswith(f"{prefix}spatial: "):
        return error
    same = type(error)(f"{prefix}spatial: {what}: {words.removeprefix(prefix)}")
    vars(same).update(vars(error))
    return same


def reject_compiled(module: torch.nn.Module, grid: Grid) -> None:
    """Rejects compiled modules: PyTorch has replaced their code, so that parts cannot be dispatched.

    Args:
        module: The module.
        grid: The ranks.
    """
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Unsupported(
            f"rank {grid.rank}: spatial: expected a plain call, received one inside of a transform of "
            "torch.func such as grad or vmap; call torch.autograd.grad, with create_graph=True to go on"
        )
    scripted = any(isinstance(one, torch.jit.ScriptModule) for one in module.modules())
    if _compiles() or scripted or any(_is_compiled(one) for one in module.modules()):
        how = "torch.jit.script" if scripted else "torch.compile"
        raise Unsupported(
            f"rank {grid.rank}: spatial: expected a module in plain Python, received one of {how}; {how} is "
            "not supported: pass the module itself"
        )


def _compiles() -> bool:
    """Whether this code runs inside `torch.compile`, which would trace every operation."""
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    follows = getattr(frames, "get_eval_frame_callback", None)
    return "torch._dynamo" in sys.modules and follows is not None and follows() not in (None, False)


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def where(trace: TracebackType | None, module: torch.nn.Module) -> tuple[str, torch.nn.Module]:
    """The innermost layer on the traceback of an error.

    Args:
        trace: The traceback.
        module: The module.

    Returns:
        The layer's name and the layer.
    """
    names: dict[int, str] = {id(one): name for name, one in module.named_modules()}
    found: tuple[str, torch.nn.Module] = "", module
    while trace is not None:
        one: Any = trace.tb_frame.f_locals.get("self")
        if id(one) in names and isinstance(one, torch.nn.Module):
            found = names[id(one)], one
        trace = trace.tb_next
    return found
