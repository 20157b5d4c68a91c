"""Finds the best number of views per call on a device by a short trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors

SIZES = (64, 128, 256, 512, 1024)
# A larger call must be this much faster per view: results of a trial then seldom differ on one device.
GAIN = 1.1


def best(rate: Callable[[int], float | None]) -> int:
    """The largest size that is clearly faster than the one before. ``rate`` gives views a second, None where memory ends."""
    chosen, fastest = None, 0.0
    for size in SIZES:
        found = rate(size)
        if found is None or (chosen is not None and found < GAIN * fastest):
            break
        chosen, fastest = size, found
    if chosen is None:
        raise errors.make("device.failed", f"the device has no memory for {SIZES[0]} views at a time")
    return chosen


def trial(towers: Any, image_size: int) -> int:
    """The size for these towers: each size runs once to warm up and once by the clock."""

    def rate(size: int) -> float | None:
        towers.batch_views = size
        pixels = np.zeros((size, 3, image_size, image_size), np.uint8)
        try:
            towers.images(pixels)
            start = time.perf_counter()
            towers.images(pixels)  # ends with a copy to the host, so nothing is still under way
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            return None
        return size / max(time.perf_counter() - start, 1e-9)

    return best(rate)
