"""The same damaged files read by others, Lightning's resume after hard kills, and workers of a Ray cluster that are killed.

`FLATCLIP_PEERS` names a Python with safetensors, torch, Pillow, Lightning, flatclip and Ray; without it these are skipped.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import time

import rust
from harness import Skipped, expect

HERE = pathlib.Path(__file__).parent
# Row, what the other reader is called, the kind of files, and how many are damaged at full scale.
COMPARED = {
    "A1": ("safetensors", "safetensors", 1000),
    "A2": ("torch", "torch", 500),
    "A3": ("pillow", "jpeg", 3000),
    "A4": ("pillow", "png", 1500),
    "A5": ("pillow", "gif", 1500),
}


def python(module):
    found = os.environ.get("FLATCLIP_PEERS")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not found or subprocess.run([found, "-c", f"import {module}"], **quiet).returncode != 0:
        raise Skipped(f"no Python with {module} here: FLATCLIP_PEERS names one")
    return found


def theirs(interpreter, what, folder):
    """What the other reader does with each file. A process that dies of one is started again behind it."""
    fates, behind, names = {}, "", sorted(path.name for path in folder.iterdir())
    while True:
        command = [interpreter, HERE / "other_readers.py", what, folder, behind]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        expect(lines and lines[0].get("started"), f"other_readers.py {what} does not start")
        fates |= {line["case"]: (line["fate"], line["pixels"]) for line in lines[1:]}
        if ended.returncode == 0:
            return fates
        behind = names[names.index(lines[-1]["case"]) + 1] if len(lines) > 1 else next(n for n in names if n > behind)
        fates[behind] = ("hung" if ended.returncode == -signal.SIGALRM else "crashed", 0)


def compare(trial, name):
    what, kind, full = COMPARED[name]
    interpreter = python("PIL" if what == "pillow" else what)
    # The test of the library leaves the files and their fates.
    ours = rust.files(kind, trial.count(full), trial.folder)
    found = theirs(interpreter, what, trial.folder / "files")
    for line in ours:
        (fate, pixels), accepted = found[line["file"]], line["fate"] != "Refused"
        trial.case(line["file"], lambda: None)
        trial.add("ours accepted" if accepted else "ours refused", 1)
        trial.add(f"theirs {fate}", 1)
        if accepted and fate == "accepted" and what == "pillow":
            trial.add("both accepted, the same pixels" if line["pixels"] == pixels else "both accepted, other pixels", 1)
        elif accepted != (fate == "accepted"):
            trial.add("only ours accepted" if accepted else "only theirs accepted", 1)


def lightning(trial):
    """A6: whether its result after kills is that of a run that was left alone. A difference is theirs, not ours."""
    command = [python("lightning"), HERE / "other_readers.py", "lightning"]

    def digest(folder):
        ended = subprocess.run([*command, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(ended.stdout.splitlines()[-1])["digest"]

    one, two = (trial.case(f"left alone, {name}", lambda name=name: digest(trial.folder / name)) for name in ("one", "two"))
    expect(one == two, "two runs that were left alone differ already")
    draw = random.Random(1)

    def resumed(folder):
        child = subprocess.Popen([*command, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (folder / "last.ckpt").exists() and child.poll() is None:
            time.sleep(0.001)
        time.sleep(draw.random())
        child.kill()
        child.wait()
        try:
            return "theirs the same bytes" if digest(folder) == one else "theirs other bytes"
        except (IndexError, KeyError):
            return "theirs did not resume"

    for number in range(trial.count(10)):
        trial.add(trial.case(f"run {number}", lambda n=number: resumed(trial.folder / f"killed-{n}")), 1)


def ray(trial):
    """F10."""
    command = [python("flatclip.ray"), HERE / "ray_kill.py", trial.folder, str(trial.count(20))]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    expect(ended.returncode == 0, "ray_kill.py did not end well")
    told = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith(b"{")]
    alone = next(line["seconds"] for line in told if "run" not in line)
    runs = [line for line in told if "run" in line]
    for line in runs:
        same = lambda line=line: expect(not line["different"], f"{line['different']} differ")  # noqa: E731
        trial.case(f"run {line['run']}", same)
    trial.add("kills", sum(line["kills"] for line in runs))
    trial.notes["seconds with four workers, none killed"] = f"{alone:.1f}"
    trial.notes["most seconds lost by kills"] = f"{max(line['seconds'] for line in runs) - alone:.1f}"
