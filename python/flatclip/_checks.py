"""Checks arguments before any work starts: errors and warnings."""

from __future__ import annotations

import difflib
import operator
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from . import _native, errors

def seed(value: Any, name: str = "random_state") -> int:
    """A seed as an integer. ``None`` is refused: results must be reproducible, so there is no random seed."""
    found = _integer(value)
    if found is None:
        help = "; every draw is repeatable, so None has no meaning: give 0, the default" if value is None else ""
        raise TypeError(f"{name}: expected an integer, found {_shown(value)}{help}")
    if not 0 <= found < 2**64:
        raise ValueError(f"{name}: expected an integer from 0 to 2**64 - 1, found {found}")
    return found


def count(value: Any, name: str) -> int | None:
    """A number of views, shots or images; ``None`` stays."""
    found = _integer(value)
    if value is not None and found is None:
        raise TypeError(f"{name}: expected an integer or None, found {_shown(value)}")
    if found is not None and found < 0:
        raise ValueError(f"{name}: expected 0 or more, found {found}")
    return found


def names(value: Any, name: str) -> list[str]:
    """A list of names. A single string is not split into characters."""
    if isinstance(value, str):
        raise TypeError(f"{name}: expected a list of names, found one text: give {name}=[{value!r}]")
    found = list(value)
    for item in found:
        if not isinstance(item, str):
            raise TypeError(f"{name}: expected a list of names, found {_shown(item)} in it")
    return found


def skips(value: Any) -> bool:
    """Whether images that cannot be read are skipped."""
    if value not in ("raise", "skip"):
        raise ValueError(f"errors: expected 'raise' or 'skip', found {value!r}")
    return bool(value == "skip")


def device(value: Any) -> None:
    """Refuses device arguments for a model that is already loaded."""
    if value is not None:
        reason = f"device: a model is loaded onto its device, found {str(value)!r} here"
        raise errors.make("option.invalid", reason, f"give flatclip.load(..., device={str(value)!r})")


def options(method: Any, given: Mapping[str, Any], arguments: Collection[str]) -> None:
    """Refuses keywords that are neither arguments nor options of the method; their values are checked when they are used.

    Without a method (the prompt then decides) an option of any method is accepted. An unknown method or one of the wrong type
    is reported when it is used.
    """
    device(given.get("device"))
    known = _options_of(method)
    for name in given:
        if known is None or name in known or "." in name:
            continue
        near = difflib.get_close_matches(name, [*arguments, *known], 1, 0.7)
        meant = f"; did you mean {near[0]}?" if near else ""
        owner = method if isinstance(method, str) else "any method"
        raise errors.make("option.invalid", f"{name}: neither an argument nor an option of {owner}{meant}", _list(method, known))


def duplicates(classes: Any, stacklevel: int) -> None:
    """Warns of duplicate names. The library refuses them later (except in ImageNet's own list); scikit-learn's conventions do
    not allow an error here."""
    if isinstance(classes, str) or not isinstance(classes, Iterable) or not hasattr(classes, "__len__"):
        return
    for name, times in Counter(name for name in classes if isinstance(name, str)).items():
        if times > 1:
            places = [place for place, other in enumerate(classes) if other == name]
            warnings.warn(
                f"classes: {name!r} occurs {times} times (positions {', '.join(map(str, places))}): answers by name cannot tell "
                "them apart; give each class a name of its own",
                stacklevel=stacklevel + 1,
            )


def _options_of(method: Any) -> set[str] | None:
    """Names and aliases of the options of a method, of all methods for ``None``; ``None`` where there is no such method."""
    if method is not None and not isinstance(method, str):
        return None
    try:
        infos = [_native.method_info(name) for name in ([method] if method else _native.list_methods("adapter"))]
    except errors.FlatclipError:
        return None
    return {word for info in infos for option in info["options"] for word in [option["name"], *option["aliases"]]}


def _list(method: Any, known: set[str]) -> str:
    if not isinstance(method, str):
        return "flatclip.method_info(NAME) lists the options of a method"
    return f"options of {method}: {', '.join(sorted(known))}" if known else f"{method} has no options"


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _shown(value: Any) -> str:
    return "None" if value is None else f"{value!r} ({type(value).__name__})"
