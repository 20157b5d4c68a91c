"""The ``repr`` and the HTML of a classifier."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any


def call(name: str, arguments: Mapping[str, Any]) -> str:
    """The call that would make it."""
    return f"{name}({', '.join(f'{key}={short(value)}' for key, value in arguments.items())})"


def table(title: str, arguments: Mapping[str, Any], state: str) -> str:
    """Its arguments and its state as HTML."""
    rows = {**{key: short(value) for key, value in arguments.items()}, "state": state}
    cells = [f"<tr><th>{html.escape(key)}</th><td>{html.escape(text)}</td></tr>" for key, text in rows.items()]
    return f"<table><caption>{title}</caption>{''.join(cells)}</table>"


def short(value: Any) -> str:
    """A short text for a value."""
    if isinstance(value, (list, tuple)) and len(value) > 4:
        return f"[{', '.join(map(repr, value[:3]))}, ... {len(value)} in all]"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
