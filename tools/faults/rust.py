"""The rows that tests of the library and fuzz targets make."""

import json
import os
import re
import subprocess

from harness import ROOT, Skipped, expect

TEST = ["cargo", "test", "--quiet", "--release", "--workspace", "--test", "bad_input", "--"]
# What `cargo fuzz` runs, and the folders of fuzz/corpus that it begins with.
TARGETS = {
    "B13-weights": ("weights", ["safetensors", "torch", "safetensors-attacks", "pickle-attacks"]),
    "B13-images": ("images", ["jpeg", "png", "gif", "webp", "bmp", "tiff"]),
    "B13-lists": ("lists", ["tar", "table", "class-names", "descriptions", "recipe"]),
    "B13-folders": ("tokenizers", ["model-folder"]),
    "B13-own": ("prompts", ["prompt", "text-features"]),
    "B13-bodies": ("bodies", ["bodies"]),
}


def rows(scale, folder):
    """The rows of `crates/flatclip-lab/tests/bad_input.rs`, by name."""
    file = folder / "rows.jsonl"
    environment = os.environ | {"FLATCLIP_FAULT_SCALE": str(scale), "FLATCLIP_FAULT_ROWS": str(file)}
    ended = subprocess.run([*TEST, "--test-threads=1"], cwd=ROOT, env=environment)
    found = {row["test"]: row for row in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    return found, ended.returncode == 0


def files(kind, count, folder):
    """So many damaged files of a kind in `folder/files`, and what our reader does with each."""
    (folder / "files").mkdir()
    environment = os.environ | {"FLATCLIP_FAULT_FILES": str(folder / "files"), "FLATCLIP_FAULT_KIND": f"{kind}:{count}"}
    ended = subprocess.run([*TEST, "damaged_files_for_others", "--ignored"], cwd=ROOT, env=environment)
    expect(ended.returncode == 0, "the test of the library failed")
    return [json.loads(line) for line in (folder / "files.jsonl").read_text().splitlines()]


def fuzz(trial, name):
    """`cargo fuzz` for ten minutes at full scale."""
    target, folders = TARGETS[name]
    if subprocess.run(["cargo", "+nightly", "fuzz", "--version"], capture_output=True).returncode != 0:
        raise Skipped("needs a nightly toolchain and cargo-fuzz")
    scratch = ROOT / "target/fuzz" / target
    scratch.mkdir(parents=True, exist_ok=True)
    corpus = [str(ROOT / "fuzz/corpus" / folder) for folder in folders]
    limits = [f"-max_total_time={trial.count(600)}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
    command = ["cargo", "+nightly", "fuzz", "run", target, str(scratch), *corpus, "--", *limits]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    stat = lambda key: int(match[1]) if (match := re.search(rf"stat::{key}: *(\d+)", ended.stdout)) else 0  # noqa: E731
    trial.tried = stat("number_of_executed_units")
    expect(ended.returncode == 0 and trial.tried, ended.stdout[-2000:])
    trial.notes = {"features covered": int(re.findall(r"ft: (\d+)", ended.stdout)[-1]), "peak MB": stat("peak_rss_mb")}
