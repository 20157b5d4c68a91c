"""Images per second and p99, against what `flatclip bench` says of the tower and against a server as users write it."""

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from load import classify, load
from server import running

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/guide/serving-measured.md"
PACKAGES = "open_clip_torch fastapi uvicorn python-multipart pillow".split()
CLASSES = "fish,lamp,snail,boat,clock,bicycle,butterfly,airplane"
VIEWS = 64
CORES = len(os.sched_getaffinity(0))


def throughput(options, folder, python):
    """The table; `python` is an interpreter with open_clip and FastAPI, or nothing."""
    lines = ["| model | per image | images/s | p50 ms | p99 ms | beside it |", "|---|---|---|---|---|---|"]

    def row(model, what, found, beside=""):
        numbers = [found.per_second(), found.quantile(0.5), found.quantile(0.99)]
        lines.append(" | ".join([f"| {model}", what, *(f"{number:.1f}" for number in numbers), f"{beside} |"]))

    # Sixteen images of 64 views wait longer for a large tower than the usual deadline allows.
    config = folder / "serve.toml"
    config.write_text("[limits]\ndeadline_ms = 300000\n")
    small = ROOT / "crates/flatclip-pocket/models/pocket-vit/config.json"
    for model, peer in [("pocket-vit", str(small)), ("random:ViT-B-32", "ViT-B-32")]:
        # Before and after: a machine drifts.
        before = bench(options.binary, model)
        with running(options.binary, folder, "--config", config, "--model", model) as (address, _):
            many, one = measured(options, address, "zero", VIEWS), measured(options, address, "zero-shot", 1)
        tower = 2 / (before + bench(options.binary, model))
        share = many.per_second() / tower
        row(model, f"{VIEWS} views", many, f"{share:.2f} of the tower alone, which does {tower:.1f} per second")
        row(model, "1 view", one)
        if python:
            with fastapi(python, peer) as address:
                theirs = measured(options, address, "zero-shot", 1)
            times, p99 = one.per_second() / theirs.per_second(), one.quantile(0.99) / theirs.quantile(0.99)
            row(model, "1 view, FastAPI + open_clip", theirs, f"flatclip does {times:.1f} times as many, at {p99:.2f} of its p99")
    return "\n".join(lines) + "\n"


def page(table, options):
    return (
        f"# Serving, measured\n\nWritten by `cargo xtask serving throughput` ({options.clients} clients, at least "
        f"{options.seconds:g} s each, PNG of 500 x 375, {CORES} cores; the\nclients run on the same machine).\n\n{table}\n"
        '"The tower alone" is `flatclip bench encode-views`: no decoding, no making of views, no HTTP.\n'
    )


def measured(options, address, method, views):
    """The load of `seconds`, or of what it takes to answer every client four times if that is longer."""
    rgb = bytes((place // 1500 % 255) ^ (place % 77) for place in range(500 * 375 * 3))
    requests = [classify(500, 375, rgb, classes=CLASSES, method=method, views=views)]
    first = load(address, options.clients, requests, options.seconds / 10)
    assert first.statuses[200], f"nothing was answered: {first.statuses}"
    found = load(address, options.clients, requests, max(options.seconds, 4 * options.clients / first.per_second()))
    assert set(found.statuses) == {200}, found.statuses
    return found


def bench(binary, model):
    """Seconds of the tower alone for the views of an image."""
    words = ["bench", "encode-views", "views", "--model", model, "--views", str(VIEWS), "--json", "--quiet"]
    cases = json.loads(subprocess.run([binary, *words], stdout=subprocess.PIPE, check=True).stdout)["cases"]
    return next(case["median"] for case in cases if case["case"].startswith("encode-views"))


@contextlib.contextmanager
def fastapi(python, model):
    """The other server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, ROOT / "tools/checks/fastapi_server.py", str(port), str(CORES), model]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while not answers(f"{address}/healthz"):
            assert time.monotonic() < end, "the FastAPI server does not answer"
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


def answers(address):
    try:
        return urllib.request.urlopen(address, timeout=60).status == 200
    except OSError:
        return False
