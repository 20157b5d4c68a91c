"""Progress of long calls: a tqdm bar if tqdm is installed, or the caller's own watcher."""

from __future__ import annotations

import logging
from typing import Any, Protocol


class Watcher(Protocol):
    """Receives the progress of a long call. All methods are called from the thread that started it."""

    def start(self, stage: str, total: int | None) -> None: ...

    def advance(self, done: int, status: str) -> None: ...

    def note(self, text: str) -> None: ...

    def finish(self) -> None: ...


class Bar:
    """A tqdm bar for each stage; shown only on a terminal or in a notebook."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm, self._bar = tqdm, None

    def start(self, stage: str, total: int | None) -> None:
        self.finish()
        self._bar = self._tqdm(total=total, desc=stage, disable=None, leave=False)

    def advance(self, done: int, status: str) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str(status, refresh=False)
            self._bar.update(done - self._bar.n)

    def note(self, text: str) -> None:
        logging.getLogger("flatclip").info(text)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def watcher(progress: bool | Watcher | None) -> Watcher | None:
    """``True`` and ``None``: a bar if tqdm is installed; ``False``: no watcher; otherwise the given watcher."""
    if progress is False:
        return None
    if progress is not None and progress is not True:
        return progress
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return Bar(tqdm)
