"""Cases that are counted, the binary under attack, and what a run leaves behind."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "fuzz/corpus"
# Files that say how long something took, or that nobody else may work here.
APART = {"timing.json", "timing.jsonl", ".lock"}
SMALL_TUNE = (
    "tune --method coop --data pocket:photo:train:64 --shots 1 --set coop.words= --set coop.n_ctx=2 --resume --quiet".split()
)


class Fault(Exception):
    """What a case found."""


class Skipped(Exception):
    """Why a test cannot run on this machine."""


def expect(condition, message):
    if not condition:
        raise Fault(message)


class Trial:
    """One test: an empty folder, the binary, and the cases so far."""

    def __init__(self, binary, scale):
        self.binary, self.scale = binary, scale
        self.tried, self.failures, self.notes = 0, [], {}
        # In memory where there is room: on a disk a small file takes longer to write than to read.
        roomy = "TMPDIR" not in os.environ and os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 << 30
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-", dir="/dev/shm" if roomy else None))
        self.program = Program(binary, self.folder)

    def count(self, full):
        return max(1, round(full * self.scale))

    def some(self, cases):
        """The beginning of a list of different cases: all from a fifth of the full scale on, two at least."""
        cases = list(cases)
        return cases[: max(2, self.count(5 * len(cases)))]

    def case(self, name, run):
        """Runs one case and returns what it found; an error is a failure of this case alone."""
        self.tried += 1
        try:
            return run()
        except (Fault, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.failures.append(f"{name}: {type(error).__name__ if not isinstance(error, Fault) else ''} {error}")
            return None

    def add(self, note, count):
        self.notes[note] = self.notes.get(note, 0) + count


class Ended:
    def __init__(self, code, stdout, stderr, seconds):
        self.code, self.stdout, self.stderr, self.seconds = code, stdout, stderr, seconds

    def check_sane(self):
        """Neither a panic nor a death by signal."""
        expect(self.code >= 0 and self.code != 101 and "panicked at" not in self.stderr, f"exit {self.code}: {self.stderr}")
        return self

    def check_worked(self):
        expect(self.check_sane().code == 0, f"exit {self.code}: {self.stderr}")
        return self


class Program:
    """The binary in a folder that is its home and working directory, with nothing of the caller's own settings."""

    def __init__(self, binary, folder):
        self.binary, self.folder = str(binary), pathlib.Path(folder)

    def environment(self, **more):
        own = ("FLATCLIP", "HF_", "XDG_", "RAYON", "NO_COLOR", "LC_", "LANG")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        return kept | {"HOME": str(self.folder), "FLATCLIP_CACHE": str(self.folder / "cache")} | more

    def start(self, arguments, limit=None, wrapper=(), **environment):
        """A running process; `limit` are commands of the shell such as `ulimit -v 100000`."""
        command = [*wrapper, self.binary, *arguments]
        if limit:
            command = ["bash", "-c", limit + '; exec "$0" "$@"', *command]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(**environment), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def end(self, arguments, patience=60, **more):
        start = time.monotonic()
        child = self.start(arguments, **more)
        try:
            out, err = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise Fault(f"did not end within {patience} s") from None
        return Ended(child.returncode, out, err.decode(errors="replace").strip(), time.monotonic() - start).check_sane()

    def works(self, arguments, **more):
        return self.end(arguments, **more).check_worked()

    def refuses(self, arguments, words, **more):
        """A refusal is exit code 2, or 3 where no image could be read."""
        ended = self.end(arguments, **more)
        expect(ended.code in (2, 3), f"expected exit 2, found {ended.code}: {ended.stderr}")
        expect(words in ended.stderr, f"expected {words!r} in: {ended.stderr}")
        return ended

    def killed_after(self, arguments, moment):
        """Kills it hard so many seconds after its start; whether it was still running."""
        child = self.start(arguments)
        try:
            out, err = child.communicate(timeout=moment)
            Ended(child.returncode, out, err.decode(errors="replace"), moment).check_sane()
            return False, child.returncode
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.communicate()
            return True, None


def contents(folder):
    """Every file below a folder by its relative path, apart from times and locks."""
    folder = pathlib.Path(folder)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in APART]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def expect_same(expected, found, what=""):
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    state = {name: "missing" if name not in found else "left over" if name not in expected else "differs" for name in different}
    expect(not different, f"{what} {state}")


def corpus(name):
    return [(path.name, path.read_bytes()) for path in sorted((CORPUS / name).iterdir())]


def remove(path):
    shutil.rmtree(path, ignore_errors=True)


def peak_of_children():
    """Bytes of the largest process that was started and waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]
