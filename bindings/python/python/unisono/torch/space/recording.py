"""Records the output of every layer of a module, and the gradients with respect to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from unisono.torch.space.layout import Layout
from unisono.torch.space.part import Part, unflattened, unwrap


class Recording:
    """The outputs and gradients of one pass, in the order in which layers ran."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[torch.Tensor, Layout | None]] = {}
        """Maps names to this rank's elements and, for parts, their layout."""
        self._calls: dict[str, int] = {}
        self._expected: set[str] = set()

    def arrived(self, name: str) -> bool:
        """Whether a value has been recorded: a gradient may not have arrived.

        Args:
            name: The name of the value.

        Returns:
            Whether it has.
        """
        return name not in self._expected

    def _record_gradient(self, name: str, gradient: torch.Tensor, place: Layout | None) -> None:
        self.values[name] = unwrap(gradient).detach().clone(), place
        self._expected.discard(name)

    def note(self, name: str, value: torch.Tensor) -> None:
        """Stores a copy of a tensor.

        Args:
            name: The name of the value.
            value: A tensor or a part.
        """
        whole = unflattened(value) if isinstance(value, Part) else value
        place = whole.place if isinstance(whole, Part) else None
        self.values[name] = unwrap(whole).detach().clone(), place

    def hook(self, name: str) -> Callable[[Any, Any, Any], None]:
        """The hook that a layer calls after each of its forward passes.

        Args:
            name: The layer's name.

        Returns:
            The hook.
        """

        def ran(_module: Any, _inputs: Any, output: Any) -> None:
            if not isinstance(output, torch.Tensor):
                return
            self._calls[name] = self._calls.get(name, 0) + 1
            call = name if self._calls[name] == 1 else f"{name} (call {self._calls[name]})"
            self.note(f"output of {call}", output)
            flat = isinstance(output, Part) and output.flat is not None
            if output.requires_grad and not flat:
                place = output.place if isinstance(output, Part) else None
                key = f"gradient at {call}"
                # The gradient arrives later, but the table keeps the layers' order.
                self._expected.add(key)
                self.values[key] = (torch.empty(0), place)
                register: Any = _origin(output).register_hook
                register(lambda one: self._record_gradient(key, one, place))

        return ran


def _origin(output: torch.Tensor) -> torch.Tensor:
    """The tensor of which a part is a view: its gradient arrives even if the part is changed in place."""
    base: Any = output._base if isinstance(output, Part) else None
    return output if base is None or base.shape != unwrap(output).shape else base


@contextmanager
def recorded(module: torch.nn.Module) -> Iterator[Recording]:
    """Records the passes inside the context.

    Args:
        module: The module; its layers without children are recorded.

    Yields:
        The recording.
    """
    recording = Recording()
    handles = [
        one.register_forward_hook(recording.hook(name or "the module"))
        for name, one in module.named_modules()
        if not any(True for _ in one.children())
    ]
    try:
        yield recording
    finally:
        for handle in handles:
            handle.remove()
