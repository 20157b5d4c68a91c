"""Cost of crossing into Python, and the peers' own Python on the same arrays: 1000 images x 64 views x 1000 classes.

    python tools/python/crossing.py --bench TARGET/release/examples/answer_many [--peers DIR] [--images 1000]

The Rust side is `cargo build --release -p flatclip --example answer_many`, which answers arrays of the same size by the same
calls without Python. DIR holds clones of the peers' repositories (TDA of kdiAAA, MTA of MaxZanella, zero of FarinaMatteo):
their functions are taken from their files and run on the CPU, in float32, from ready features. Both sides use all cores;
each side twice, the faster counts.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flatclip


def functions(file: Path, names: list[str], **known: Any) -> types.SimpleNamespace:
    """Functions of a file by name, without its imports (loaders, GPUs, trackers)."""
    tree = ast.parse(file.read_text())
    wanted = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in wanted:
        node.decorator_list = []
    space = dict(known)
    exec(compile(ast.Module(wanted, []), str(file), "exec"), space)
    return types.SimpleNamespace(**{name: space[name] for name in names})


def peers(folder: Path, views: np.ndarray, text: np.ndarray) -> dict[str, Callable[[], list[int]]]:
    """What the authors' code does with ready features, by method."""
    import math
    import operator

    import torch
    import torch.nn.functional as F

    # Their code moves to the GPU and to half; here it stays where it is.
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
    torch.Tensor.half = lambda self: self.float()  # type: ignore[method-assign]
    z, t = F.normalize(torch.from_numpy(views), dim=-1), F.normalize(torch.from_numpy(text), dim=-1)
    common = {"torch": torch, "F": F, "np": np, "math": math, "operator": operator}

    mta = functions(folder / "MTA/mta.py", ["gaussian_kernel", "solve_mta"], **common)
    settings = types.SimpleNamespace(lambda_y=0.2, lambda_q=4)

    def run_mta() -> list[int]:
        model = lambda inputs, features: (inputs, t, 100.0)  # noqa: E731
        return [int(mta.solve_mta(model, one, settings).argmax()) for one in z]

    names = ["get_entropy", "softmax_entropy", "avg_entropy", "get_clip_logits"]
    tda_utils = functions(folder / "TDA/utils.py", names, **common)
    tda = functions(folder / "TDA/tda_runner.py", ["update_cache", "compute_cache_logits"], **common)

    def run_tda() -> list[int]:
        class Tower:
            def encode_image(self, images: Any) -> Any:
                return images.clone()

        weights, positive, negative, found = t.t().contiguous(), {}, {}, []
        for one in z:
            feature, logits, loss, chances, guess = tda_utils.get_clip_logits(one, Tower(), weights)
            entropy = tda_utils.get_entropy(loss, weights)
            tda.update_cache(positive, guess, [feature, loss], 3)
            if 0.2 < entropy < 0.5:
                tda.update_cache(negative, guess, [feature, loss, chances], 2, True)
            final = logits.clone()
            final += tda.compute_cache_logits(feature, positive, 2.0, 5.0, weights)
            if negative:
                final -= tda.compute_cache_logits(feature, negative, 0.117, 1.0, weights, (0.03, 1.0))
            found.append(int(final.argmax()))
        return found

    base = functions(folder / "zero/ttas/base.py", ["confidence_filter"], **common)
    tools = functions(folder / "zero/utils/tools.py", ["greedy_break", "break_sample_tie"], **common)
    zero = functions(
        folder / "zero/ttas/zero.py", ["zero"], confidence_filter=base.confidence_filter, greedy_break=tools.greedy_break, **common
    )

    def run_zero() -> list[int]:
        model = types.SimpleNamespace(get_text_features=lambda: t, get_image_features=lambda one: one, temp=0.01)
        own = types.SimpleNamespace(model=model, gamma=0.1)
        return [int(zero.zero(own, one).argmax()) for one in z]

    return {"zero": run_zero, "mta": run_mta, "tda": run_tda}


def fastest(work: Callable[[], Any], times: int = 2) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(times):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, help="the example answer_many, built in release")
    parser.add_argument("--peers", type=Path, help="folder with clones TDA, MTA, zero")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--width", type=int, default=512)
    a = parser.parse_args()
    rng = np.random.default_rng(0)
    text = rng.normal(size=(a.classes, a.width)).astype(np.float32)
    views = text[rng.integers(0, a.classes, a.images)][:, None] + rng.normal(size=(a.images, a.views, a.width)) * 1.2
    views = views.astype(np.float32)
    theirs = peers(a.peers, views, text) if a.peers else {}
    print(f"{a.images} images x {a.views} views x {a.classes} classes, width {a.width}, {flatclip.get_num_threads()} threads\n")
    print("| method | Python s | Rust s | Python / Rust | peer s | peer / Python | same answers |\n|---|---|---|---|---|---|---|")
    for method in ["zero-shot", "zero", "mta", "tda"]:
        options = {"fraction": 0.1} if method == "zero" else {}
        made = flatclip.FeatureClassifier(text, 100.0, method, **options)
        ours, answers = fastest(lambda made=made: made(views))
        rust = float("nan")
        if a.bench:
            words = [a.bench, method, a.images, a.views, a.classes, a.width, json.dumps(options)]
            rust = float(subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout)
        row = f"| {method} | {ours:.3f} | {rust:.3f} | {ours / rust:.2f} |"
        if method in theirs:
            peer, found = fastest(theirs[method])
            row += f" {peer:.2f} | {peer / ours:.1f} | {100 * np.mean(answers.predictions == found):.1f} % |"
        else:
            row += " | | |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
