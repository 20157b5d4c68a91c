"""Explanations of answers."""

from __future__ import annotations

import base64
import html
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._native import Answer


class Explanation:
    """Explanation of an answer: the views, their scores, and a contact sheet of all views."""

    def __init__(self, answer: Answer, views: int, png: bytes) -> None:
        self.answer, self.views, self.png = answer, views, png

    @property
    def label(self) -> str:
        """Name of the answered class."""
        return self.answer.label

    @property
    def selected_views(self) -> list[dict[str, Any]]:
        """The selected views, best first."""
        return self.answer.selected_views()

    @property
    def scores(self) -> NDArray[np.float32] | None:
        """The scores by which the method ranked the views."""
        return self.answer.scores

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image of all views (PNG)."""
        with open(path, "wb") as file:
            file.write(self.png)

    def __repr__(self) -> str:
        count = len(self.answer.selected)
        return f"<flatclip.Explanation {self.answer.label} {self.answer.confidence:.4f}: {count} of {self.views} views selected>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{p:.4f}</td></tr>" for name, p in self.answer.top())
        image = base64.b64encode(self.png).decode()
        return (
            f"<p><b>{html.escape(self.label)}</b> {self.answer.confidence:.4f}; "
            f"{len(self.answer.selected)} of {self.views} views selected (framed)</p>"
            f"<table><tr><th>class</th><th>probability</th></tr>{rows}</table>"
            f'<img alt="the views with their scores" style="max-width:100%" src="data:image/png;base64,{image}">'
        )
