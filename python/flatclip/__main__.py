"""``python -m flatclip COMMAND``: the demonstration, and the commands that can run on a device (``--device cuda``)."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from typing import Any

from . import _native, _reproduce, _runs
from ._models import load
from ._progress import watcher

# Commands with the keywords of the functions that they call; `--key-words` on the command line.
COMMANDS: dict[str, tuple[Callable[..., Any], list[str], str]] = {
    "eval": (_runs.evaluate, ["data"], "evaluate methods on data sets"),
    "sweep": (_runs.sweep, ["data"], "evaluate a grid of settings"),
    "tune": (_runs.tune, ["data"], "learn a prompt"),
    "landscape": (_runs.landscape, [], "loss surfaces around prompts"),
    "reproduce": (_reproduce.reproduce, ["item"], "an item of the paper"),
}


def _option(parser: argparse.ArgumentParser, name: str, parameter: inspect.Parameter) -> None:
    """Adds a keyword as an option; its type comes from the signature."""
    text, flag = str(parameter.annotation), f"--{name.replace('_', '-')}"
    required = parameter.default is inspect.Parameter.empty
    kind = int if "int" in text and "float" not in text else float if "float" in text and "str" not in text else str
    if "Mapping" in text:
        parser.add_argument(flag, action="append", metavar="KEY=VALUE", default=[])
    elif text == "bool":
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=parameter.default)
    elif text == "bool | None":
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None)
    elif "Sequence" in text:
        parser.add_argument(flag, nargs="+", type=kind, default=parameter.default, required=required)
    else:
        parser.add_argument(flag, type=kind, default=parameter.default, required=required)


def _value(text: str) -> Any:
    """Converts a value to a number if possible."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)


def _pairs(name: str, words: list[str]) -> dict[str, Any] | None:
    """``KEY=VALUE`` words; axes of a sweep have several values."""
    split = [word.partition("=")[::2] for word in words]
    several = name == "axes"
    return {key: [_value(v) for v in value.split(",")] if several else _value(value) for key, value in split} or None


def _run(arguments: argparse.Namespace) -> str:
    function = COMMANDS[arguments.command][0]
    given = {**vars(arguments)}
    where = {key: given.pop(key) for key in ("device", "dtype", "batch_views")}
    del given["command"]
    annotations = {name: str(p.annotation) for name, p in inspect.signature(function).parameters.items()}
    keywords: dict[str, Any] = {name: _pairs(name, value) if "Mapping" in annotations[name] else value for name, value in given.items()}
    if "Sequence" in annotations.get("data", "") and len(keywords["data"]) == 1:
        keywords["data"] = keywords["data"][0]
    name = keywords.pop("model")
    if name is None and arguments.command == "reproduce":
        name = _native.recipe_model(keywords["item"], keywords["recipe"])
    model = load(name or "pocket", **where)
    found = function(model=model, **keywords)
    return "\n".join(str(table) for table in found.values()) if arguments.command == "sweep" else _shown(found)


def _shown(found: Any) -> str:
    if isinstance(found, tuple):  # a prompt and its summary
        return "\n".join(f"{key}: {value}" for key, value in found[1].items() if not isinstance(value, (dict, list)))
    return repr(found) if isinstance(found, (_runs.Runs, _runs.Landscape)) else str(found)


def main(words: list[str] | None = None) -> int:
    """The command; the full one is the binary `flatclip`."""
    parser = argparse.ArgumentParser(prog="python -m flatclip", description=__doc__)
    parser.add_argument("--version", action="version", version=_native.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="tune, evaluate and report on the embedded model")
    demo.add_argument("--quick", action="store_true", help="seconds instead of about a minute; not for numbers")
    demo.add_argument("--out", default="flatclip-demo", help="output directory [%(default)s]")
    commands.add_parser("methods", help="names of all methods")
    commands.add_parser("models", help="names of all known models")
    for name, (function, places, about) in COMMANDS.items():
        command = commands.add_parser(name, help=about)
        for place in places:
            command.add_argument(place, nargs="+" if place == "data" and name in ("eval", "sweep") else "?")
        for keyword, parameter in inspect.signature(function).parameters.items():
            if keyword not in (*places, "model", "progress"):
                _option(command, keyword, parameter)
        command.add_argument("--model", help="a name, a folder or a file")
        command.add_argument("--device", help="torch computes the towers there: cuda, mps, xpu, cpu")
        command.add_argument("--dtype", help="float32, bfloat16 or float16")
        command.add_argument("--batch-views", type=int, help="views that go to the device together")
    arguments = parser.parse_args(words)
    if arguments.command == "demo":
        text, seconds, report = _native.demo(arguments.out, quick=arguments.quick, progress=watcher(None))
        print(f"{text}\n\n{seconds:.0f} s. The report: {report}")
    elif arguments.command in COMMANDS:
        print(_run(arguments))
    else:
        names = _native.list_methods() if arguments.command == "methods" else _native.list_models()
        print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
