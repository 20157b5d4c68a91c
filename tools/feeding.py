"""How fast views reach a device, measured with one that answers at once.

    python tools/feeding.py [IMAGES] [VIEWS]

Writes JPEGs of 500 x 375 pixels into a temporary folder, evaluates ZERO on them with an encoder that does no work, and prints
views per second and the share of the time that the device waited for views. Needs flatclip, numpy and Pillow, and an idle machine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import flatclip


def photos(folder: Path, count: int) -> None:
    """Images with structure at several scales, so that they decode like photographs."""
    rng = np.random.default_rng(0)
    for index in range(count):
        coarse = [rng.integers(0, 256, (375 // cell + 2, 500 // cell + 2, 3)) for cell in (75, 25, 5)]
        layers = [np.kron(part, np.ones((cell, cell, 1)))[:375, :500] for part, cell in zip(coarse, (75, 25, 5))]
        pixels = (0.5 * layers[0] + 0.3 * layers[1] + 0.2 * layers[2]).astype(np.uint8)
        place = folder / f"class{index % 4}"
        place.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(place / f"{index}.jpg", quality=90)


def main(count: int = 200, views: int = 64) -> None:
    answer = np.random.default_rng(1).standard_normal((4096, 512)).astype(np.float32)
    encoder = flatclip.Encoder(
        lambda pixels: answer[: len(pixels)], lambda texts: answer[: len(texts)], size=224, pixels="uint8", batch_views=256,
        fingerprint="null",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").mkdir()
        photos(Path(folder) / "data", count)
        how = {"views": views, "out": f"{folder}/run", "progress": False}
        timing = flatclip.evaluate(encoder, f"folder:{folder}/data", "zero", **how)[0]["timing"]
    waited = 1 - timing["encode_session"] / timing["wall"]
    print(f"{count * views / timing['wall']:.0f} views a second; the device waited {100 * waited:.0f} % of the time")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
