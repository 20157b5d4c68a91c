"""Detects when a classifier has to be rebuilt."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _native


class Built(NamedTuple):
    """A built object and the arguments it was built from."""

    key: tuple[Any, ...]
    engine: _native.Engine
    names: list[str] | None
    given: tuple[Any, ...]
    """Objects that the key identifies by ``id``, held so that the ids are not reused; the class list first."""

    @property
    def classes(self) -> Any:
        return self.given[0]


def identity(name: str, value: Any) -> Any:
    """A key that shows whether an argument has changed: its content or, for large values, its identity."""
    if name in ("model", "classes", "progress") or (name == "prompt" and not isinstance(value, (str, list, tuple))):
        return value if isinstance(value, str) else id(value)
    return repr(value)
