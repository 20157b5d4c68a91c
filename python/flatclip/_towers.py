"""Shared by `flatclip.torch` and `flatclip.Encoder`: the towers of both are objects with the methods that compiled flatclip
calls (`bridge.rs`). Arguments and results are numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from . import errors

Floats = NDArray[np.float32]

# Minimum cosine similarity with flatclip's f32 kernels that a device must reach.
FULL, HALF = 0.999, 0.995


class Failed(Exception):
    """A failed call; compiled flatclip converts it to an error that names the call."""

    def __init__(self, call: str, reason: str) -> None:
        super().__init__(f"{call}: {reason}")
        self.call, self.reason = call, reason


class ClassTokens:
    """The fixed tokens of all classes, and the positions of the context among them, as padded arrays."""

    def __init__(
        self, n_ctx: int, position: str, sot: int | None, names: Sequence[Sequence[int]], rests: Sequence[Sequence[int]]
    ) -> None:
        self.n_ctx = n_ctx
        before = {"end": n_ctx, "middle": n_ctx // 2, "front": 0}[position]
        start = [] if sot is None else [sot]
        head, tail = list(range(before)), list(range(before, n_ctx))
        blank = [-1] * n_ctx
        rows = [[*start, *blank[:before], *name, *blank[before:], *rest] for name, rest in zip(names, rests)]
        slots = [[*[-1] * len(start), *head, *[-1] * len(name), *tail, *[-1] * len(rest)] for name, rest in zip(names, rests)]
        self.ends = np.array([len(row) - 1 for row in rows])
        self.ids, self.slots = padded(rows), padded(slots, -1)
        # Positions that are the same for all classes of a shared context: the start token and what follows it.
        self.shared = len(start) + before

    def __len__(self) -> int:
        return len(self.ends)

def padded(rows: Sequence[Sequence[int]], fill: int = 0) -> NDArray[np.int64]:
    """Rows of different lengths as one array."""
    out = np.full((len(rows), max(map(len, rows))), fill, np.int64)
    for to, row in zip(out, rows):
        to[: len(row)] = row
    return out


def need_torch() -> None:
    """Raises an error that says how to install torch if it is missing."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        reason = f"device: torch cannot be imported ({error}); install it with pip install flatclip[torch]"
        raise errors.make("device.failed", reason) from error
