"""Fault tests: attacks on the readers and on the binary, counted.

    python3 tools/faults [all|bad-input|kill|disk|determinism|hub|fuzz|anchors] [--scale 0.1] [--only F1,F2]

Prints a JSON line for each test, merges it into records/robustness.jsonl and writes docs/robustness.md from all lines.
Only the standard library is needed; what else a test needs, and is not there, makes it skipped.
"""

import argparse
import datetime
import os
import pathlib
import subprocess
import sys
import time
from functools import partial

import command_line
import disk
import hub
import kill
import others
import page
import rust
import same
from harness import ROOT, Ended, Fault, Program, Skipped, Trial, expect, expect_same, peak_of_children, remove

SAME_BYTES = "every file of the result has the bytes of a run that was left alone"
BESIDE = "ours neither panics nor hangs; the others' counts stand beside"
READ = "refused with the path, or read; no panic, no hang"
FOUND = "no panic, no input above 10 s, peak below 2 GB"

# Name, suite, what is done, when it passes, and the function; the rows of the library's tests have none.
TESTS = [
    ("B1", "bad-input", "safetensors cut at every length to 4096 and at 1000 others", "refused with the path", None),
    ("B2", "bad-input", "each byte of a safetensors header changed by three masks", "refused, or the same weights", None),
    ("B3", "bad-input", "crafted safetensors: lengths, offsets, overlap, holes, keys, types, shapes, NaN", "each is refused", None),
    ("B4", "bad-input", "pickles that call, explode, nest, lie about lengths; zip bombs", "refused below 2 s and 200 MB; nothing runs", None),
    ("B5", "bad-input", "JPEG cut at random", "refused, or an image of the size told", None),
    ("B7", "bad-input", "every layout of pixels against Pillow's", "at most 2 levels apart", None),
    ("B10", "bad-input", "options of a wrong type or out of range", "refused by name, or in range", None),
    ("B11", "bad-input", "texts at the edges of Unicode and of the tower", "tokens or a refusal; never cut in silence", None),
    ("B12", "bad-input", "command line: absent, unreadable, odd paths; numbers out of range", "exit code 2, no file left", command_line.misuse),
    ("B12-memory", "bad-input", "30 photos of 12 megapixels in one command; sparse files of 3 GB, 200 MB of no image, 89 million pixels in 35 bytes",
     "memory of one photo, whatever the number; refused before it is read; at most 3 bytes a pixel and 64 MB", command_line.memory),
    ("M1", "bad-input", "damaged safetensors", READ, None),
    ("M2", "bad-input", "damaged torch files (zip and legacy)", READ, None),
    ("M3", "bad-input", "damaged JPEG", READ, None),
    ("M4", "bad-input", "damaged PNG", READ, None),
    ("M5", "bad-input", "damaged GIF", READ, None),
    ("M6", "bad-input", "damaged WebP", READ, None),
    ("M7", "bad-input", "damaged BMP", READ, None),
    ("M8", "bad-input", "damaged tar shards", READ, None),
    ("M9", "bad-input", "damaged tables of samples", READ, None),
    ("M10", "bad-input", "damaged class lists", READ, None),
    ("M11", "bad-input", "damaged text features (npy, safetensors)", READ, None),
    ("M12", "bad-input", "damaged prompt files", "refused, or the same prompt: never another one", None),
    ("M13", "bad-input", "a damaged file of a finished run", "refused, or the same content: never another one", None),
    ("M14", "bad-input", "damaged TIFF", READ, None),
    ("M15", "bad-input", "damaged files of a model folder: vocabulary, merges, configuration, tokenizer", READ, None),
    ("M16", "bad-input", "damaged descriptions of classes", READ, None),
    ("M17", "bad-input", "damaged recipes", READ, None),
    ("M18", "bad-input", "damaged files of models of other families (SigLIP in both layouts, EVA-02): weights, configuration, tokenizer", READ, None),
    ("F1", "kill", "kill -9 during tune, resumed until done", SAME_BYTES, partial(kill.killed, name="F1")),
    ("F1-eval", "kill", "kill -9 during eval, resumed until done", SAME_BYTES, partial(kill.killed, name="F1-eval")),
    ("F1-sweep", "kill", "kill -9 during sweep, resumed until done", SAME_BYTES, partial(kill.killed, name="F1-sweep")),
    ("F1-landscape", "kill", "kill -9 during landscape, started again until done", SAME_BYTES, partial(kill.killed, name="F1-landscape")),
    ("F2", "kill", "kill -9 at a write, a sync, a rename, a removal in the run directory of tune",
     "a resumed run has the bytes of one that was left alone; no half file, nothing left over", kill.killed_at_calls),
    ("F3", "kill", "loss of power before each file call of tune and eval: content that was not synced is gone; then names as well",
     "a resumed run has the bytes of one that was left alone", kill.power_lost),
    ("F4", "kill", "the newest checkpoint cut, flipped, emptied, replaced; then both",
     "goes on from the one before to the same bytes, or refuses; never another result", kill.damaged_checkpoints),
    ("F6", "kill", "SIGINT and SIGTERM during tune and eval", "ends within 10 s with what is done kept; a resumed run has the same bytes", kill.signals),
    ("F8", "kill", "a second process in the same run directory", "the second is refused, the first ends with the same bytes", kill.two_processes),
    ("F10", "kill", "Ray, 4 workers, 500 images: one of the workers is killed, 5 times in a run", "the run ends with the bytes of a single process", others.ray),
    ("F15", "kill", "learning rates that make the loss of a later step NaN",
     "stops at that step, named with its batch; the checkpoint before it stays, no result is written", kill.diverge),
    ("F5", "disk", "a full disk (a small file system) below tune, eval, the feature cache, reports",
     "an error or a warning; what was there stays whole; with space again the same bytes", disk.full_disk),
    ("F13", "disk", "weights cut, overwritten, exchanged or removed while a server runs",
     "the same answers, ready all the time: weights are read into memory, not mapped; a new start refuses the damaged file", disk.replaced),
    ("F17", "disk", "memory limits above and below the estimate", "above it works, below it refuses at the start with the numbers; nothing is killed", disk.memory),
    ("F9", "determinism", "eval in 2, 3 and 7 shards, merged in any order; parts missing, twice, foreign", "the bytes of one run; refusals name what is wrong", same.shards),
    ("F11", "determinism", "threads 1, 2, 3, 8; without a feature cache, with a cold and a warm one", "the same predictions, to the byte", same.threads),
    ("F12", "determinism", "instruction paths: plain against the best of the machine", "the same answers, probabilities within 1e-3", same.instructions),
    ("F14", "determinism", "locales, time zones, a clock set back", "the same bytes", same.surroundings),
    ("F16", "hub", "downloads: cut, wrong digest, 404, 503 three times, redirects in a circle, a page for a file, a stale part, no space",
     "resumes or refuses; no bad file under its final name; the token is sent to the endpoint alone and never printed", hub.downloads),
    *((name, "fuzz", f"cargo fuzz, target `{target}`", FOUND, partial(rust.fuzz, name=name)) for name, (target, _) in rust.TARGETS.items()),
    ("A1", "anchors", "damaged and crafted safetensors: ours, and safetensors in Python", BESIDE, partial(others.compare, name="A1")),
    ("A2", "anchors", "damaged torch files and pickle attacks: ours, and torch.load(weights_only=True)", BESIDE, partial(others.compare, name="A2")),
    ("A3", "anchors", "damaged JPEG: ours, and Pillow", BESIDE, partial(others.compare, name="A3")),
    ("A4", "anchors", "damaged PNG: ours, and Pillow", BESIDE, partial(others.compare, name="A4")),
    ("A5", "anchors", "damaged GIF: ours, and Pillow", BESIDE, partial(others.compare, name="A5")),
    ("A6", "anchors", "a prompt learned with Lightning, kill -9 and resume (ours: F1)", BESIDE, others.lightning),
]  # fmt: skip
SUITES = ["all", "bad-input", "kill", "disk", "determinism", "hub", "fuzz", "anchors"]


def told(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def surroundings(scale):
    """Date, commit and machine of a row."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    own = [":!records", ":!docs/robustness.md"]  # what this program writes
    changed = " with changes" if told("git", "status", "--porcelain", "--untracked-files=no", "--", ".", *own) else ""
    return {
        "scale": scale,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": told("git", "rev-parse", "--short=10", "HEAD") + changed,
        "machine": f"{name}, {os.cpu_count()} cores, {memory:.0f} GB",
    }


def attempt(run, binary, scale):
    """Runs one test; whatever happens becomes a row."""
    trial, start, skipped = Trial(binary, scale), time.monotonic(), ""
    try:
        run(trial)
    except Skipped as reason:
        skipped = str(reason)
    except (Fault, OSError, subprocess.SubprocessError) as error:
        trial.failures.append(f"the test itself: {error}")
    finally:
        remove(trial.folder)
    # A test that tried nothing has shown nothing.
    if not (trial.tried or skipped or trial.failures):
        trial.failures.append("nothing was tried")
    passed = max(0, trial.tried - len(trial.failures))
    row = {"tried": trial.tried, "passed": passed, "failures": trial.failures[:10], "notes": trial.notes}
    row |= {"seconds": round(time.monotonic() - start, 2), "peak_mb": peak_of_children() >> 20}
    return row | ({"skipped": skipped} if skipped else {})


def library_rows(wanted, scale):
    """The rows of the library's tests; one that the tests did not reach has failed."""
    folder = Trial("", scale).folder
    found, passed = rust.rows(scale, folder)
    remove(folder)
    missing = {"tried": 0, "passed": 0, "failures": ["see the output of the test"], "notes": {}, "seconds": 0, "peak_mb": 0}
    complete = lambda row: row | {"passed": row["tried"], "failures": [], "seconds": round(row["seconds"], 2)}  # noqa: E731
    if not passed:
        print("FAILED  cargo test --test bad_input", file=sys.stderr)
    return {name: complete(found[name]) if name in found else missing for name in wanted}, passed


def check_harness():
    """A harness that does not find these finds nothing."""

    def wrong(trial):
        trial.case("good", lambda: None)
        trial.case("wrong", lambda: expect(False, "another result"))
        trial.case("after", lambda: None)

    def skip(trial):
        raise Skipped("not on this machine")

    planted = {
        "good": lambda trial: trial.case("good", lambda: None),
        "wrong": wrong,
        "panic": lambda trial: trial.case("panic", lambda: Ended(101, b"", "panicked at", 0).check_sane()),
        "hang": lambda trial: trial.case("hang", lambda: Program("sleep", trial.folder).end(["9"], patience=0.1)),
        "other bytes": lambda trial: trial.case("bytes", lambda: expect_same({"a": b"1"}, {"a": b"2"})),
        "broken test": lambda trial: expect(False, "cannot begin"),
        "nothing": lambda trial: None,
        "skip": skip,
    }
    rows = {name: attempt(run, "", 1.0) for name, run in planted.items()}
    good = [name for name, row in rows.items() if page.is_good(row)]
    skipped = [name for name, row in rows.items() if page.is_skipped(row)]
    if good != ["good"] or skipped != ["skip"] or rows["wrong"]["passed"] != 2:
        sys.exit(f"the harness does not find what is planted in it: {rows}")


def main():
    parser = argparse.ArgumentParser(prog="tools/faults", description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES, nargs="?", default="all", help="all: all but fuzz and anchors")
    parser.add_argument("--scale", type=float, default=1.0, help="the part of the full counts that is tried")
    parser.add_argument("--only", default="", help="names of tests, with commas")
    parser.add_argument("--binary", help="the binary to attack, instead of building it")
    parser.add_argument("--quick", action="store_true", help="a tenth, no page, without the library's tests: for cargo xtask test")
    parser.add_argument("--page", action="store_true", help="run nothing, write docs/robustness.md from the records")
    chosen = parser.parse_args()
    if chosen.page:
        return page.write()
    check_harness()
    only, scale = set(filter(None, chosen.only.split(","))), 0.1 if chosen.quick else chosen.scale
    unknown = only - {name for name, *_ in TESTS}
    if unknown:
        parser.error(f"no test is called {', '.join(sorted(unknown))}; there are {', '.join(name for name, *_ in TESTS)}")
    in_suite = lambda suite: suite not in ("fuzz", "anchors") if chosen.suite == "all" else suite == chosen.suite  # noqa: E731
    tests = [test for test in TESTS if (test[0] in only if only else in_suite(test[1])) and not (chosen.quick and test[4] is None)]
    binary = chosen.binary
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--workspace", "--bin", "flatclip"], cwd=ROOT, check=True)
        binary = ROOT / "target/release/flatclip"
    library = [test[0] for test in tests if test[4] is None]
    ready, passed = library_rows(library, scale) if library else ({}, True)
    results = []
    for name, suite, what, rule, run in tests:
        row = ready.get(name) or attempt(run, pathlib.Path(binary).resolve(), scale)
        row = {"test": name, "suite": suite, "what": what, "rule": rule} | row | surroundings(scale)
        page.say(row)
        if not chosen.quick:
            page.merge(row)
        results.append(row)
    skipped = [row["test"] for row in results if page.is_skipped(row)]
    failed = [row["test"] for row in results if not page.is_good(row) and not page.is_skipped(row)]
    if skipped:
        print(f"{len(skipped)} of {len(results)} tests were skipped: {', '.join(skipped)}", file=sys.stderr)
    if failed or not passed:
        sys.exit(f"{len(failed)} of {len(results)} tests failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
