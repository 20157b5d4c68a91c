"""The two kinds of processes that take turns: `flatclip bench --turns` and `peers.py`. Both stay loaded and warm, run once per
line of stdin and answer with one line of JSON."""

import json
import os
import subprocess

# Settings that help torch most: no fresh pages for every large block, and huge ones.
TUNED = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:glibc.malloc.hugetlb=1"


class Ended(Exception):
    """A process that answers no more."""


class Turns:
    """A process that answers line by line; killed at the end of its `with`."""

    def __init__(self, command, folder, what, **environment):
        self.what = what
        self.process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, line):
        """Sends a line and reads the answer."""
        try:
            self.send(line)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise Ended(f"{self.what} ended at `{line}`")
        try:
            return json.loads(answer)
        except ValueError:
            raise Ended(f"{self.what} answered {answer!r}") from None

    def send(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def run(self, line):
        """One run: its seconds, arithmetic and peak memory; or text that says why there is none."""
        answer = self.ask(line)
        return answer if "seconds" in answer else answer.get("error", "no seconds in the answer")


def ours(binary, folder, arguments, skip):
    """One case of `flatclip bench`, ready to run."""
    turns = Turns([binary, "bench", "--turns", "--quiet", *arguments], folder, f"flatclip bench {' '.join(arguments)}")
    for _ in range(skip):
        turns.send("next")
    return turns


def peers(python, folder, tuned=True, preload=None):
    """The peers' process."""
    environment = ({"GLIBC_TUNABLES": TUNED} if tuned else {}) | ({"LD_PRELOAD": preload} if preload else {})
    return Turns([python, "peers.py"], folder, "the peers", **environment)
