"""Where the time of an evaluation goes: on our kernels, and with towers on a device.

    python tools/device_profile.py [MODEL] [DEVICE] [METHOD ...] [--images N] [--views V] [--data DATA]

Evaluates each method twice on the same images and prints seconds by stage. `load` runs beside the rest. `image tower` is the time
in which features of views are made, `method` the adapter, which for methods like TPT contains passes of the text tower; `in torch`
is what torch computed, measured around its calls (text features before the first image included), `other` the rest of the wall time. If the device takes over nothing
but the towers, `other` and `method` without torch stay what they are on our kernels. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import flatclip
from flatclip.torch import _towers

# What compiled flatclip calls: of the towers, and of the records that they give for gradients.
CALLS = {
    _towers.Towers: ("images", "texts", "embed", "contexts", "deep", "vision", "batch_norm_pass"),
    _towers.ContextRecord: ("gradient",),
    _towers.VisionRecord: ("gradient", "tokens"),
}


def clocked(total: list[float]) -> None:
    """Adds the time of all calls to `total`."""
    for kind, names in CALLS.items():
        for name in names:
            own = getattr(kind, name)

            def call(*given: Any, own: Any = own) -> Any:
                start = time.perf_counter()
                try:
                    return own(*given)
                finally:
                    total[0] += time.perf_counter() - start

            setattr(kind, name, call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="pocket-vit")
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("methods", nargs="*", default=["zero", "stss", "tpt"])
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--data", default="pocket:sketch")
    asked = parser.parse_args()
    models = {"flatclip": flatclip.load(asked.model, precision="f32"), asked.device: flatclip.load(asked.model, device=asked.device)}
    in_torch = [0.0]
    clocked(in_torch)
    print(f"{asked.model}, {asked.data}, {asked.images} images, {asked.views} views; seconds")
    print(f"{'method':<12}{'towers':<10}" + "".join(f"{stage:>13}" for stage in ("load", "image tower", "method", "in torch", "other", "wall")))
    for method in asked.methods:
        for name, model in models.items():
            in_torch[0] = 0.0
            with tempfile.TemporaryDirectory() as folder:
                run = flatclip.evaluate(model, asked.data, method, views=asked.views, limit=asked.images, out=f"{folder}/run", progress=False)
            timing = run[0]["timing"]
            other = timing["wall"] - timing["encode_session"] - timing["adapt"]
            stages = [timing["load"], timing["encode_session"], timing["adapt"], in_torch[0], other, timing["wall"]]
            print(f"{method:<12}{name:<10}" + "".join(f"{seconds:13.3f}" for seconds in stages))


if __name__ == "__main__":
    main()
