"""The server as a process of its own under load: throughput, overload, a soak."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

for beside in ["checks", "."]:
    sys.path.insert(1, str(Path(__file__).parents[1] / beside))
from environment import environment, positive  # noqa: E402
from soak import overload, soak  # noqa: E402
from throughput import PACKAGES, PAGE, page, throughput  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask serving", description=__doc__)
    parser.add_argument("binary", type=os.path.abspath, help="flatclip; given by cargo xtask")
    tasks = parser.add_subparsers(dest="task", required=True)
    part = tasks.add_parser("throughput", help="images per second and p99, against `flatclip bench` and a FastAPI + open_clip server; writes docs/guide/serving-measured.md")
    part.add_argument("--seconds", type=float, default=20, help="seconds of each measurement [default: 20]")
    part.add_argument("--clients", type=positive, default=16, help="clients at once [default: 16]")
    part.add_argument("--python", metavar="FILE", help="a Python with open_clip, FastAPI and uvicorn; by default an environment is made in the user's cache")
    part.add_argument("--no-peer", action="store_true", help="leave the FastAPI server out")
    part.add_argument("--no-page", action="store_true", help="print only, do not write docs/guide/serving-measured.md")
    part = tasks.add_parser("overload", help="requests at 2 and 10 times the capacity, and a crowd of 1 000 clients")
    part.add_argument("--seconds", type=float, default=60, help="seconds of each load [default: 60]")
    part = tasks.add_parser("soak", help="load the server for a while; resident memory and open files must stay flat")
    part.add_argument("--minutes", type=float, default=30, help="minutes [default: 30]")
    part.add_argument("--share", type=float, default=0.8, help="share of the capacity that is measured first [default: 0.8]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.task != "throughput":
            return {"soak": soak, "overload": overload}[options.task](options, Path(folder))
        python = None if options.no_peer else options.python or environment("fastapi", PACKAGES, probe="import open_clip, fastapi, uvicorn, multipart, PIL")
        table = throughput(options, Path(folder), python)
    print(table)
    if not options.no_page:
        PAGE.write_text(page(table, options))


if __name__ == "__main__":
    main()
