"""Runs that are ended the hard way, again and again, and must still end with the bytes of a run that was left alone."""

import random
import shutil
import signal
import subprocess
import time

import disk_model
from harness import SMALL_TUNE, Skipped, contents, expect, expect_same, json_lines, remove

TUNE = [*SMALL_TUNE, *"--epochs 12 --checkpoint-every 2 --out".split()]
EVAL = "eval --method stss --data pocket:sketch --limit 40 --views 16 --no-cache --resume --quiet --out".split()
SWEEP = (
    "sweep --set stss.radius=0,0.5 --set stss.fraction=0.1,0.3 --data pocket:hard --limit 10 --views 8 --resume --quiet --out"
).split()
LANDSCAPE = "landscape --data pocket:photo:train:64 --shots 1 --points 9 --quiet --out".split()
COMMANDS = {"F1": TUNE, "F1-eval": EVAL, "F1-sweep": SWEEP, "F1-landscape": LANDSCAPE}
# A run that was killed so often is left alone, or it would never end.
MOST = 8


def straight(trial, arguments, out="run"):
    """A run that is left alone: its files and its seconds."""
    ended = trial.program.works([*arguments, out])
    found = contents(trial.folder / out)
    expect(len(found) > 2, f"the straight run left {len(found)} files")
    return found, ended.seconds


def killed(trial, name):
    """Kills at random moments until the wanted number is reached, run after run."""
    arguments, draw = COMMANDS[name], random.Random(1)
    expected, seconds = straight(trial, arguments)
    wanted, kills, number = trial.count(100), 0, 0

    def until_done():
        nonlocal seconds
        for here in range(MOST + 1):
            moment = 60 if here == MOST else 1.2 * seconds * draw.random()
            start = time.monotonic()
            was_killed, code = trial.program.killed_after([*arguments, "run"], moment)
            if was_killed:
                continue
            # A landscape that was killed after its last byte is not begun again; its bytes are compared all the same.
            expect(code == 0 or (here and name == "F1-landscape" and code == 2), f"exit {code} after {here} kills")
            seconds = seconds if here else time.monotonic() - start
            expect_same(expected, contents(trial.folder / "run"), f"after {here} kills:")
            return here
        return MOST

    # A run can end before the moment that was drawn; not all may.
    while kills < wanted and number < 4 * wanted + 10:
        remove(trial.folder / "run")
        kills += trial.case(f"run {number}", until_done) or 0
        number += 1
    trial.add("kills", kills)
    expect(kills >= wanted, f"{kills} kills in {number} runs, wanted {wanted}")


def watch(trial):
    if not shutil.which("strace"):
        raise Skipped("strace is not here")
    seen = trial.program.end(["version"], wrapper=["strace", "-f", "-qq", "-o", str(trial.folder / "log"), "-e", "write"])
    if seen.code != 0 or "write(" not in (trial.folder / "log").read_text():
        raise Skipped("no process may be watched here")


def killed_at_calls(trial):
    """F2: strace ends the run at the entry of the chosen call."""
    watch(trial)
    out, log = trial.folder / "run", trial.folder / "log"
    expected, _ = straight(trial, TUNE)
    remove(out)
    calls = disk_model.calls(trial.program, [*TUNE, "run"], out, log)
    expect_same(expected, contents(out), "a run that is watched:")
    for kind, names in disk_model.KINDS.items():
        places = [(call.name, call.number) for call in calls if call.name in names and call.inside]
        expect(places, f"a run makes no call of the kind {kind}")
        trial.notes[f"{kind} calls in a run"] = len(places)
        wanted = min(trial.count(25), len(places))
        chosen = [places[len(places) - 1 - number * len(places) // wanted] for number in range(wanted)]

        def at(name, number):
            remove(out)
            inject = f"inject={name}:signal=SIGKILL:when={number}"
            wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={name}", "-e", inject]
            child = trial.program.start([*TUNE, "run"], wrapper=wrapper)
            child.communicate(timeout=120)
            expect(child.returncode in (0, -signal.SIGKILL, 137), f"it ended by itself with {child.returncode}")
            trial.program.works([*TUNE, "run"])
            expect_same(expected, contents(out))
            return child.returncode != 0

        kills = [trial.case(f"{kind} {place}", lambda place=place: at(*place)) for place in chosen]
        expect(any(kills), f"no run was killed at a call of the kind {kind}")
        trial.add("kills", sum(map(bool, kills)))


def power_lost(trial):
    """F3: what a disk can still have if the power goes before a call; then the run is resumed."""
    watch(trial)
    for name, arguments in (("tune", TUNE), ("eval", EVAL)):
        out, log = trial.folder / "run", trial.folder / "log"
        remove(out)
        expected, _ = straight(trial, arguments)
        remove(out)
        calls = disk_model.calls(trial.program, [*arguments, "run"], out, log)
        states, final = disk_model.states(calls, out)
        # The model must end with the files that are there, or its states mean nothing.
        there = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file() and path.name != ".lock"}
        expect(final == there, f"the model of the disk differs in {[n for n in there if final.get(n) != there[n]]}")
        trial.notes[f"different states of {name}"] = len(states)
        wanted = min(trial.count(100), len(states))
        for number in range(wanted):
            place = len(states) - 1 - number * len(states) // wanted

            def resumed(state=states[place]):
                remove(out)
                out.mkdir()
                if state:
                    (out / ".lock").touch()
                for file, content in state.items():
                    (out / file).write_bytes(content)
                trial.program.works([*arguments, "run"])
                expect_same(expected, contents(out), f"from {[(file, len(content)) for file, content in state.items()]}:")

            trial.case(f"{name}, state {place} of {len(states)}", resumed)


def damaged_checkpoints(trial):
    """F4."""
    expected, seconds = straight(trial, TUNE, "straight")
    names, draw = ["checkpoint.safetensors", "checkpoint.previous.safetensors"], random.Random(4)

    def stop_with_two(out):
        for _ in range(50):
            remove(out)
            child = trial.program.start([*TUNE, out.name])
            end = time.monotonic() + 20 * seconds
            while child.poll() is None and time.monotonic() < end and not all((out / name).is_file() for name in names):
                time.sleep(0.001)
            child.kill()
            child.communicate()
            if all((out / name).is_file() for name in names) and not (out / "summary.json").exists():
                return
        expect(False, "no run could be stopped between two checkpoints and its end")

    def flipped(data, place):
        return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]

    def resumed(out, how):
        stop_with_two(out)
        data = (out / names[0]).read_bytes()
        damage = {
            "cut": lambda: data[: draw.randrange(len(data))],
            "emptied": lambda: b"",
            "replaced": lambda: (trial.folder / "straight/prompt.safetensors").read_bytes(),
        }
        (out / names[0]).write_bytes(damage.get(how, lambda: flipped(data, draw.randrange(len(data))))())
        if how == "both flipped":
            older = (out / names[1]).read_bytes()
            (out / names[1]).write_bytes(flipped(older, len(older) // 2))
        ended = trial.program.end([*TUNE, out.name])
        if ended.code == 0:
            return expect_same(expected, contents(out))
        expect(how == "both flipped", f"refused although the one before is whole: {ended.stderr}")
        return expect("checkpoint" in ended.stderr, f"names no checkpoint: {ended.stderr}")

    for number in range(trial.count(20)):
        how = ["cut", "flipped", "emptied", "replaced", "both flipped"][number % 5]
        trial.case(f"{number} {how}", lambda n=number, how=how: resumed(trial.folder / f"damaged-{n}", how))


def signals(trial):
    """F6."""
    for name, arguments in (("tune", TUNE), ("eval", EVAL)):
        expected, seconds = straight(trial, arguments, f"straight-{name}")

        def resumed(number, out, arguments=arguments, expected=expected, seconds=seconds):
            child = trial.program.start([*arguments, out])
            time.sleep(seconds * (0.1 + 0.08 * number))
            if child.poll() is None:
                child.send_signal([signal.SIGTERM, signal.SIGINT][number % 2])
            try:
                child.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                expect(False, "still there 10 s after the signal")
            trial.program.works([*arguments, out])
            expect_same(expected, contents(trial.folder / out))

        for number in range(trial.count(10)):
            trial.case(f"{name} {number}", lambda n=number, name=name, go=resumed: go(n, f"{name}-{n}"))


def two_processes(trial):
    """F8."""
    expected, _ = straight(trial, EVAL, "straight")

    def pair(out):
        first = trial.program.start([*EVAL, out])
        while first.poll() is None and not (trial.folder / out / "predictions.jsonl").exists():
            time.sleep(0.001)
        second = trial.program.end([*EVAL, out])
        # The first may have ended by now: then the second finds a complete run.
        expect(second.code == 0 or "another process" in second.stderr, second.stderr)
        expect(first.wait(60) == 0, "the first did not end well")
        expect_same(expected, contents(trial.folder / out))
        return second.code != 0

    for number in range(trial.count(10)):
        trial.add("refused", bool(trial.case(f"pair {number}", lambda n=number: pair(f"both-{n}"))))


def diverge(trial):
    """F15: each rate ends at another step; the largest is the largest that a 32-bit float holds."""

    def stops(rate):
        out = trial.folder / f"rate-{rate}"
        tune = [*SMALL_TUNE, *f"--epochs 12 --checkpoint-every 1 --set train.lr={rate} --out {out.name}".split()]

        def step_of(text):
            expect("step " in text, f"names no step: {text}")
            return int(text.split("step ", 1)[1].split()[0])

        stopped = step_of(trial.program.refuses(tune, "loss NaN").stderr)
        kept = (out / "checkpoint.safetensors").read_bytes()
        records = json_lines((out / "metrics.jsonl").read_text())
        expect(len(records) + 1 == stopped, f"{len(records)} records before step {stopped}")
        expect(all(isinstance(record["loss"], float) for record in records), "a record without a loss")
        expect(step_of(trial.program.refuses(tune, "loss NaN").stderr) == stopped, "resumed, it stops elsewhere")
        expect((out / "checkpoint.safetensors").read_bytes() == kept, "the good checkpoint was changed")
        for name in ("prompt.safetensors", "summary.json"):
            expect(not (out / name).exists(), f"{name} was written")
        trial.notes[f"{rate} stops at step"] = str(stopped)

    for rate in trial.some(["1e20", "1e25", "1e30", "1e35", "3e38"]):
        trial.case(f"learning rate {rate}", lambda rate=rate: stops(rate))
