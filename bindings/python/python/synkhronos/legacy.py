"""Functions and collectives with the arguments that only Synkhronos had."""

from __future__ import annotations

from typing import Any

from unisono import functions


class Function(functions.Function):
    """A function with Synkhronos' names for its methods and arguments."""

    @classmethod
    def of(cls, made: functions.Function) -> Function:
        """The same function, under Synkhronos' names."""
        same = cls.__new__(cls)
        vars(same).update(vars(made))
        return same

    def __call__(self, *args: Any, batch_s: Any = None, **kwargs: Any) -> Any:
        """Runs the function on all workers.

        Args:
            *args: The inputs.
            batch_s: The rows that each worker takes from its own sliceable variables.
            **kwargs: As for `unisono.functions.Function`.

        Returns:
            The output, or a list of them.
        """
        if batch_s is not None:
            kwargs["shared_batch"] = batch_s
        return super().__call__(*args, **kwargs)

    def as_theano(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on the master alone, on arrays.

        Args:
            *args: The inputs, as arrays.
            **kwargs: Inputs by name.

        Returns:
            The output, or a list of them.
        """
        return self.alone(*args, **kwargs)


def function(
    inputs: Any,
    outputs: Any = None,
    bcast_inputs: Any = None,
    updates: Any = None,
    givens: Any = None,
    sliceable_shareds: Any = None,
    **options: Any,
) -> Function:
    """Creates a function, as `unisono.functions.function` does; modes may begin with ``c_``, without effect.

    Args:
        inputs: The symbolic inputs that are scattered.
        outputs: The symbolic outputs, or pairs of an output and its mode.
        bcast_inputs: The symbolic inputs that every worker gets in full.
        updates: Changes of shared variables.
        givens: Replacements in the graph.
        sliceable_shareds: Shared variables that hold data.
        **options: As for `unisono.functions.function`.

    Returns:
        The function.
    """
    made = functions.function(
        inputs, _plain(outputs), bcast_inputs, _plain(updates), givens, sliceable_shareds, **options
    )
    return Function.of(made)


def _plain(given: Any) -> Any:
    """Outputs or updates without the prefix of their modes."""
    if isinstance(given, list):
        return [_plain(one) for one in given]
    if isinstance(given, tuple) and given and isinstance(given[-1], str):
        return (*given[:-1], given[-1].removeprefix("c_"))
    return given.removeprefix("c_") if isinstance(given, str) else given


def broadcast(shared_vars: Any, values: Any = None, nccl: bool = True) -> None:
    """As `unisono.functions.broadcast`.

    Args:
        shared_vars: The variables.
        values: Values assigned to the master's variables first.
        nccl: Ignored, here and below; the transport between devices is selected automatically.
    """
    functions.broadcast(shared_vars, values)


def gather(shared_vars: Any, nd_up: int = 1, nccl: bool = True) -> Any:
    """As `unisono.functions.gather`."""
    return functions.gather(shared_vars, nd_up)


def all_gather(shared_vars: Any, nccl: bool = True) -> None:
    """As `unisono.functions.all_gather`."""
    functions.all_gather(shared_vars)


def reduce(shared_vars: Any, op: str = "avg", in_place: bool = True, nccl: bool = True) -> Any:
    """As `unisono.functions.reduce`."""
    return functions.reduce(shared_vars, op, in_place)


def all_reduce(shared_vars: Any, op: str = "avg", nccl: bool = True) -> None:
    """As `unisono.functions.all_reduce`."""
    functions.all_reduce(shared_vars, op)
