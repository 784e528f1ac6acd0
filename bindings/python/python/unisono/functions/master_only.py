"""Worker placeholders for the master's functions and data: objects may hold them, code cannot use them."""

from __future__ import annotations

from typing import Any, NoReturn


class RemoteValue:
    """Placeholder on a worker for a value that only the master has."""

    def __init__(self, what: str, advice: str) -> None:
        self.__dict__.update(_what=what, _advice=advice)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteValue, (self._what, self._advice)

    def _reject(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{self._what} is the master's, and a worker cannot use it; {self._advice}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._reject()

    __call__ = __getitem__ = __setitem__ = __len__ = __iter__ = __array__ = __setattr__ = _reject
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = _reject
    __truediv__ = __rtruediv__ = __bool__ = __float__ = __int__ = _reject
