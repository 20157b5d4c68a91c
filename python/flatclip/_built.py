"""When a classifier has to be built again."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _native


class Built(NamedTuple):
    """What was built, and of what."""

    key: tuple[Any, ...]
    engine: _native.Engine
    names: list[str] | None
    given: tuple[Any, ...]
    """The objects that the key names by identity, so that no other can take their place; the class list first."""

    @property
    def classes(self) -> Any:
        return self.given[0]


def identity(name: str, value: Any) -> Any:
    """What tells whether an argument has changed: its content, or, where that is large, which object it is."""
    if name in ("model", "classes", "progress") or (name == "prompt" and not isinstance(value, (str, list, tuple))):
        return value if isinstance(value, str) else id(value)
    return repr(value)
