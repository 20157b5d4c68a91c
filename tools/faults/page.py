"""`docs/robustness.md`, written from `records/robustness.jsonl`: a line per test, the latest of each."""

import json
import re
import sys

from harness import ROOT

LINES, PAGE = ROOT / "records/robustness.jsonl", ROOT / "docs/robustness.md"
# The suites in the order of the page, and what stands above each.
SECTIONS = {
    "bad-input": """Bad input

Files of `fuzz/corpus`, damaged by `fuzz/src/readers.rs`, and crafted ones, read by `crates/flatclip-lab/tests/bad_input.rs`; B12 by
the binary. A format without a checksum (weights, images, lists) can be read as other content after a flipped bit: counted apart.
Small files of many pixels: `crates/flatclip/tests/image_memory.rs`.""",
    "kill": "Kills\n\nRuns that are ended hard and resumed must end with the bytes of a run that was left alone.",
    "disk": "Full disks, short memory, weights that change",
    "determinism": "Repeatable results",
    "hub": "Downloads",
    "server": """Server

Measured at the commits of the last column, with an earlier harness. Most of these attacks are tests of `crates/flatclip-serve/tests`
now: S5, S7, S11, S20 and S26 in a smaller form, S10 in parts. Load over time is `cargo xtask serving overload` and
`cargo xtask serving soak`, the page `cargo xtask serving page`.

S26 at full length is `FLATCLIP_FAULT_SCALE=8 cargo test --release --workspace --test promise`. With the clients in the server's own process
(2026-11-18): 190 MB above the models, 95 % of 3080 requests of /healthz within 2.0 ms, an honest client at 37 % of its usual rate.

The bounds do not cost speed. The server before them (3172b55) and this one in turns, `wrk` with 16 connections on the same two idle cores (AMD
Zen 5, 2026-11-18), PNG of 500 x 375, ranges over the turns:

| model, views, turns | images/s before | now | p99 ms before | now |
|---|---|---|---|---|
| pocket-vit, 1 view, 3 of 6 s | 1154 to 1330 | 1310 to 1374 | 21.0 to 24.3 | 15.0 to 20.7 |
| random:ViT-B-32, 1 view, 3 of 10 s | 77 to 80 | 73 to 82 | 381 to 680 | 252 to 331 |
| pocket-vit, 64 views (zero), 2 of 10 s | 73.5 to 73.7 | 76.8 to 77.5 | 255 to 287 | 221 to 231 |""",
    "fuzz": "Fuzzing\n\nTargets of `fuzz/`, ten minutes each at scale 1. Rows without `cargo fuzz` are from the mutation loop before it.",
    "anchors": "The same attacks on others\n\nSide by side on the same files; counts of refused, accepted, crashed.",
}
HEAD = """# Robustness

What was done to flatclip on purpose, how often, and what came of it. `python3 tools/faults all` runs it and writes this page
(fuzzing and the comparison with others apart: `fuzz`, `anchors`); a part is in `cargo xtask test`. {passed} of {tried} cases
passed.{skipped}

A row carries the date, commit and machine of its own run. Peak memory is that of the largest process until then. Seconds are no
benchmark: the machine may have been busy. Scale 1 is the full count.
"""
COLUMNS = "| test | what | passes when | passed / tried | seconds | peak MB | also | run |\n|---|---|---|---|---|---|---|---|\n"
BESIDE = """
| test | files | ours: refused, accepted | theirs: refused, accepted, panicked, crashed, hung | only ours accepted | only theirs accepted | accepted by both: same pixels, other pixels |
|---|---:|---|---|---:|---:|---|
"""


def is_skipped(row):
    return bool(row.get("skipped")) and row["tried"] == 0 and not row["failures"]


def is_good(row):
    return row["tried"] > 0 and row["passed"] == row["tried"] and not row["failures"]


def say(row):
    """A JSON line for programs, a sentence for people."""
    print(json.dumps(row), flush=True)
    if is_skipped(row):
        print(f"skipped  {row['test']}: {row['skipped']}", file=sys.stderr)
        return
    verdict = "ok" if is_good(row) else "FAILED"
    print(f"{verdict}  {row['test']}: {row['passed']} of {row['tried']} in {row['seconds']:.1f} s", file=sys.stderr)
    for failure in row["failures"]:
        print(f"    {failure}", file=sys.stderr)


def read():
    return [json.loads(line) for line in LINES.read_text().splitlines()]


def merge(row):
    """Puts a row in the place of an earlier one with the same name. A test that was skipped has shown nothing: what an
    earlier run showed stays, with its own date and commit."""
    rows = read()
    place = next((place for place, other in enumerate(rows) if other["test"] == row["test"]), None)
    if place is None:
        rows.append(row)
    elif not is_skipped(row):
        rows[place] = row
    LINES.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write()


def order(row):
    """B2 before B10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", row["test"])]


def escape(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def line(row):
    result = f"skipped: {escape(row['skipped'])}" if is_skipped(row) else f"{row['passed']} / {row['tried']}"
    notes = escape(", ".join(f"{key} {value}" for key, value in row["notes"].items()))
    run = f"{row['date']} {row['commit']}, scale {row['scale']:g}"
    cells = [row["test"], escape(row["what"]), escape(row["rule"]), result, f"{row['seconds']:.1f}", row["peak_mb"], notes, run]
    failures = "".join(f"| | **failed** | {escape(failure)} | | | | | |\n" for failure in row["failures"])
    return "| " + " | ".join(map(str, cells)) + " |\n" + failures


def beside(row):
    """Ours and theirs in columns."""
    counts = lambda *keys: ", ".join(str(row["notes"].get(key, 0)) for key in keys)  # noqa: E731
    pixels = ("both accepted, the same pixels", "both accepted, other pixels")
    theirs = counts(*(f"theirs {fate}" for fate in ("refused", "accepted", "panicked", "crashed", "hung")))
    cells = [row["test"], row["tried"], counts("ours refused", "ours accepted"), theirs, counts("only ours accepted")]
    cells += [counts("only theirs accepted"), counts(*pixels) if any(key in row["notes"] for key in pixels) else ""]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def write():
    rows = sorted(read(), key=order)
    count = sum(map(is_skipped, rows))
    skipped = f" {count} skipped, which count for nothing." if count else ""
    text = HEAD.format(passed=sum(r["passed"] for r in rows), tried=sum(r["tried"] for r in rows), skipped=skipped)
    for suite, words in SECTIONS.items():
        chosen = [row for row in rows if row["suite"] == suite]
        title, _, more = words.partition("\n\n")
        text += f"\n## {title}\n\n" + (f"{more}\n\n" if more else "") + COLUMNS + "".join(map(line, chosen))
        compared = [row for row in chosen if any(key.startswith("ours ") for key in row["notes"])]
        text += BESIDE + "".join(map(beside, compared)) if compared else ""
    text += f"\nMachine: {'; '.join(sorted({row['machine'] for row in rows}))}.\n"
    PAGE.write_text(text)
