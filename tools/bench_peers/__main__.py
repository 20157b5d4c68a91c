"""`cargo xtask bench-peers`: the same work in flatclip and in its peers, turn by turn in one run, and one table of ratios."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import page
import start
from groups import GROUPS, Ours
from turns import Ended, ours, peers

sys.path.insert(1, str(Path(__file__).parents[1]))
from environment import environment, positive  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "torch torchvision open_clip_torch transformers openvino nncf onnx onnxscript onnxruntime".split()
PROBE = "import torch, torchvision, open_clip, transformers, openvino, nncf, onnxscript, onnxruntime"
# Between turns: threads of the last side stop spinning.
PAUSE = 0.3
# Photos over which the peers' features are compared with f32.
PHOTOS = 200


def arguments(words):
    parser = argparse.ArgumentParser(prog="cargo xtask bench-peers", description=__doc__)
    parser.add_argument("binary", type=os.path.abspath, help="flatclip; given by cargo xtask, as is the next")
    parser.add_argument("tokens", type=os.path.abspath, help="tokens.json, the token ids of class names")
    parser.add_argument("--quick", action="store_true", help="three turns of 16 views, where --repeats and --views do not say otherwise")
    parser.add_argument("--venv", metavar="FOLDER", help="virtual environment of the peers, made when it is not there [default: flatclip-peers in the cache folder of this user]")
    parser.add_argument("--only", metavar="TEXT", default="", help="run only groups with TEXT in their names")
    parser.add_argument("--repeats", metavar="N", type=positive, help="turns that count [default: 5]")
    parser.add_argument("--threads", metavar="N", type=positive, default=2, help="threads of both sides [default: 2]")
    parser.add_argument("--views", metavar="N", type=positive, help="views per image [default: 64]")
    parser.add_argument("--preload", metavar="FILE", help="a library for the peers' process, such as one that answers CPUID leaves that a hypervisor hides")
    parser.add_argument("--tower", metavar="FOLDER", type=os.path.abspath, help="a real image tower (a directory in Hugging Face's layout) for the peers' ViT-B/16 rows, with --photos: the page then says how far their features are from f32")
    parser.add_argument("--photos", metavar="FOLDER", type=os.path.abspath, help="photos for the tower")
    parser.add_argument("--start", action="store_true", help="also time a clean build of the command line, and the start of a program to its first answer")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args(words)
    if bool(options.tower) != bool(options.photos):
        parser.error("--tower and --photos need each other")
    options.groups = [group for group in GROUPS if options.only in group.name]
    if not options.groups:
        parser.error("--only: no group has this in its name")
    options.repeats = options.repeats or (3 if options.quick else 5)
    options.views = options.views or (16 if options.quick else 64)
    return options


def main():
    options = arguments(sys.argv[1:])
    version = json.loads(subprocess.run([options.binary, "version", "--json"], capture_output=True, check=True).stdout)
    options.python = environment("peers", PACKAGES, options.venv, PROBE)
    with tempfile.TemporaryDirectory() as folder:
        for file in [options.tokens, ROOT / "tools/peers.py"]:
            shutil.copy(file, folder)
        results, notes = [], ""
        for group in options.groups:
            if group.tiles and version["isa"] != "amx":
                results.append((group, None))
                continue
            print(f"{group.name} ...", file=sys.stderr)
            results.append((group, compare(group, folder, options)))
        if options.tower:
            notes += cosines(folder, options)
        if options.start:
            notes += start.rows(ROOT, options.binary, folder)
        with peers(options.python, folder) as process:
            versions = process.ask("versions").get("versions", "unknown versions")
    text = page.page(results, options, sys.argv[3:], versions, version["isa"]) + notes
    print(text, end="")
    if options.write:
        file = ROOT / "docs/benchmarks.md"
        file.write_text(text + page.notes_of(file.read_text() if file.exists() else ""))


def write_settings(folder, threads, views, options):
    """What the peers are told."""
    settings = {"threads": threads, "views": views}
    if options.tower:
        settings |= {"tower": options.tower, "photos": options.photos}
    (Path(folder) / "settings.json").write_text(json.dumps(settings))


def cosines(folder, options):
    """How far the peers' features are from torch's in f32 on the real tower: some are fast and wrong."""
    write_settings(folder, options.threads, PHOTOS, options)
    table = f"\n| peer, {PHOTOS} photos on a real ViT-B/16 image tower | lowest cosine to torch f32 |\n|---|---|\n"
    with peers(options.python, folder) as process:
        for name in ["openvino-views-f32", "onnx-views-f32", "openvino-views-int8", "onnx-views-int8"]:
            answer = process.ask(f"cosine {name}")
            shown = f"{answer['cosine']:.6f}" if "cosine" in answer else answer["error"]
            table += f"| {name} | {shown} |\n"
    return table


def compare(group, folder, options):
    """The runs of every side, or why it could not run. Turn by turn: every side once, and again. Each of our sides has a process
    of its own, the peers share one (or two, where one is left untuned)."""
    threads = 1 if group.one_thread else options.threads
    write_settings(folder, threads, options.views, options)
    times, processes = [[] for _ in group.sides], {}

    def opened(side):
        if not isinstance(side, Ours):
            return peers(options.python, folder, side.tuned, options.preload)
        # What a group fixes itself comes later, and wins.
        views = [] if "--views" in side.arguments else ["--views", str(options.views)]
        return ours(options.binary, folder, ["--threads", str(threads), *views, *side.arguments.split()], side.skip)

    with contextlib.ExitStack() as stack:
        # Their process makes the photo that both sides read: it has, when it answers.
        processes["tuned", True] = stack.enter_context(peers(options.python, folder, True, options.preload))
        processes["tuned", True].ask("versions")
        # One turn more than counts: the first loads and warms up.
        for turn in range(options.repeats + 1):
            for index, side in enumerate(group.sides):
                if isinstance(times[index], str):
                    continue
                key, line = (index, "run") if isinstance(side, Ours) else (("tuned", side.tuned), side.name)
                if key not in processes:
                    processes[key] = stack.enter_context(opened(side))
                try:
                    run = processes[key].run(line)
                except Ended as error:
                    if isinstance(side, Ours):
                        raise
                    # A peer that dies (say, of an instruction that a hypervisor forbids) is a row, not the end.
                    del processes[key]
                    run = str(error)
                if isinstance(run, str):
                    times[index] = run
                elif turn > 0:
                    times[index].append(run)
                time.sleep(PAUSE)
    return times


if __name__ == "__main__":
    try:
        main()
    except Ended as error:
        sys.exit(f"error: {error}")
