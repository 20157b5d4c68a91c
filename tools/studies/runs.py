"""Runs of `flatclip eval`, read for the studies: who was right, paired differences with their intervals, tables."""

import json
import pathlib
import random
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build():
    """The binary, built as cargo builds it for the tests."""
    subprocess.run(["cargo", "build", "--release", "--workspace", "--bin", "flatclip"], cwd=ROOT, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps"], cwd=ROOT, capture_output=True, check=True)
    return pathlib.Path(json.loads(metadata.stdout)["target_directory"]) / "release/flatclip"


def evaluate(binary, out, *options):
    """A finished run is taken as it is, an unfinished one resumed."""
    subprocess.run([binary, "eval", "--out", out, "--resume", "--quiet", *map(str, options)], check=True, stdout=subprocess.DEVNULL)
    return out


def records(run):
    return [json.loads(line) for line in (pathlib.Path(run) / "predictions.jsonl").read_text().splitlines()]


def rights(run):
    """Right or wrong by the sample's id."""
    return {one["id"]: one["answer"]["prediction"] == one["label"] for one in records(run) if one.get("answer")}


def paired(pairs, resamples=2000):
    """Accuracies in per cent of rule and control, their difference and its 95 % bootstrap interval, from (group, rule, control):
    an image of a group counts by the mean over its runs."""
    images = {}
    for group, rule, control in pairs:
        for sample in rule.keys() & control.keys():
            images.setdefault((group, sample), []).append((rule[sample], control[sample]))
    rows = [tuple(100 * sum(column) / len(found) for column in zip(*found)) for _, found in sorted(images.items())]
    mean = lambda values: sum(values) / max(len(values), 1)  # noqa: E731
    differences, draw = [a - b for a, b in rows], random.Random(0)
    means = sorted(mean(draw.choices(differences, k=len(differences))) for _ in range(resamples))
    low, high = means[round((resamples - 1) * 0.025)], means[round((resamples - 1) * 0.975)]
    return {"rule": mean([a for a, _ in rows]), "control": mean([b for _, b in rows]), "difference": mean(differences), "low": low, "high": high}


def table(title, header, rows, note=""):
    """Markdown; columns of numbers are aligned to the right."""
    right = [all(str(row[place])[:1] in "0123456789+-" for row in rows) for place in range(len(header))]
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---:" if one else "---" for one in right) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return f"### {title}\n\n" + "\n".join(lines) + "\n" + (f"\n{note}\n" if note else "")
