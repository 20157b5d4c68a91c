"""``python -m flatclip demo``: the whole idea on the embedded model and the synthetic pocket dataset, offline."""

from __future__ import annotations

import argparse
import sys

from . import _native
from ._progress import watcher


def main(words: list[str] | None = None) -> int:
    """The command; the full one is the binary `flatclip`."""
    parser = argparse.ArgumentParser(prog="python -m flatclip", description=__doc__)
    parser.add_argument("--version", action="version", version=_native.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="tune, evaluate and report on the embedded model")
    demo.add_argument("--quick", action="store_true", help="seconds instead of about a minute; not for numbers")
    demo.add_argument("--out", default="flatclip-demo", help="where everything goes [%(default)s]")
    commands.add_parser("methods", help="names of all methods")
    commands.add_parser("models", help="names of all known models")
    arguments = parser.parse_args(words)
    if arguments.command == "demo":
        text, seconds, report = _native.demo(arguments.out, quick=arguments.quick, progress=watcher(None))
        print(f"{text}\n\n{seconds:.0f} s. The report: {report}")
    else:
        names = _native.list_methods() if arguments.command == "methods" else _native.list_models()
        print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
