"""Prompts learned with the text tower in i16 against f32: the same seeds, shots and settings on the embedded models, evaluated on
images that neither saw. Prints a table; `cargo xtask gradients` compares the gradients themselves.

    python3 tools/studies/text_precision.py [--binary FILE] [--method sapt] [--seeds 8] [--shots 16] [--count 400]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from runs import build, evaluate, paired, rights, table

MODELS = ["pocket", "pocket-vit"]
STYLES = ["photo", "sketch", "hard"]
PRECISIONS = ["f32", "i16"]


def tune(binary, folder, arguments, model, seed, precision):
    """The folder of a learned prompt, and its loss on the training images."""
    out = folder / f"{model}-{seed}-{precision}"
    words = ["tune", "--method", arguments.method, "--data", "pocket:photo", "--shots", arguments.shots, "--model", model]
    words += ["--text-precision", precision, "--seed", seed, "--out", out, "--json", "--quiet"]
    found = subprocess.run([binary, *map(str, words)], check=True, capture_output=True, text=True)
    return out, json.loads(found.stdout)["train"]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, help="flatclip [default: built from this clone]")
    parser.add_argument("--method", default="sapt")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--shots", type=int, default=16)
    parser.add_argument("--count", type=int, default=400, help="validation images of each style")
    arguments = parser.parse_args()
    binary, rows = arguments.binary or build(), []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for model in MODELS:
            pairs, losses, top = [], {name: [] for name in PRECISIONS}, {name: [] for name in PRECISIONS}
            for seed in range(1, arguments.seeds + 1):
                right = {}
                for precision in PRECISIONS:
                    prompt, loss = tune(binary, folder, arguments, model, seed, precision)
                    losses[precision].append(loss)
                    right[precision] = {}
                    for style in STYLES:
                        data = f"pocket:{style}:validation:{arguments.count}"
                        options = ["--model", model, "--data", data, "--prompt", prompt, "--method", "zero-shot"]
                        run = evaluate(binary, folder / "runs" / prompt.name / style, *options, "--cache", folder / "cache")
                        right[precision] |= {(style, sample): one for sample, one in rights(run).items()}
                    top[precision].append(100 * statistics.mean(right[precision].values()))
                pairs.append((0, right["i16"], right["f32"]))
            both = paired(pairs)
            apart = [i16 - f32 for i16, f32 in zip(top["i16"], top["f32"])]
            rows.append([
                model,
                f"{both['control']:.2f}",
                f"{both['rule']:.2f}",
                f"{both['difference']:+.2f}",
                f"{both['low']:+.2f} to {both['high']:+.2f}",
                f"{max(map(abs, apart)):.2f}",
                f"{statistics.stdev(top['f32']):.2f}",
                f"{statistics.mean(losses['f32']):.4f}",
                f"{statistics.mean(losses['i16']):.4f}",
            ])  # fmt: skip
    header = ["model", "f32 top-1", "i16 top-1", "difference", "95 %", "largest of a seed", "sd of seeds, f32", "loss f32", "loss i16"]
    title = f"{arguments.method}, {arguments.shots} shots, {arguments.seeds} seeds, {arguments.count} images of {', '.join(STYLES)}"
    print(table(title, header, rows))


main()
