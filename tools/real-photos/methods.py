"""Runs the adapters that need no text tower on one set, and makes the table of the protocol from the runs."""

import argparse
import json
import pathlib
import subprocess

import numpy as np
from paired import ece, holm, interval, mcnemar

SINGLE = "zero-shot vte zero mta tps sts stss se awt".split()
STREAM = "tda dpe boostadapter dmn dota oga adapt onzeta bca ecalp dlae mcp adte-stream".split()
SETS = "stata transclip adapt-transductive adte".split()
PRESETS = "tda dpe boostadapter dota onzeta adapt adapt-transductive dlae mcp".split()
TEXTS = ["photo", "gpt3", "mean"]


def evaluate(args, name, text, methods, out, *more):
    """One call of `flatclip eval` on cached features; finished runs are skipped."""
    classes = 1000 if name.startswith("photos") else 16
    beside = [other for other in ["photo", "bare", "gpt3"] if other != text]
    command = [args.flatclip, "-q", "eval", "--data", f"csv:{name}.csv", "--no-exif", "--model", args.model, "--precision", "i16",
               "--text-features", f"{args.texts}/{text}-{classes}.safetensors", "--class-names", f"{args.texts}/classes-{classes}.txt",
               "--view-policy", "crop-flip", "--seeds", "1", "--cache", args.cache, "--max-errors", "0", "--resume",
               "--method", ",".join(methods), "--out", str(out), *more]
    for other in beside:
        command += ["--text-bank", f"{args.texts}/{other}-{classes}.safetensors"]
    for method in methods:
        if method in PRESETS:
            command += ["--set", f"{method}.preset=neutral"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run(args):
    out = pathlib.Path(args.out) / args.name
    for text in TEXTS if args.name.startswith("photos") else ["mean"]:
        evaluate(args, args.name, text, SINGLE + SETS, out / text / "any-order", "--views", "64")
        for order in range(1, 6):
            evaluate(args, args.name, text, STREAM, out / text / f"order-{order}", "--views", "64", "--order-seed", str(order))


def answers(folder):
    """Prediction, label, confidence and views of every image by id, in the order of the stream, and the time to adapt one."""
    lines = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    lines = sorted(lines, key=lambda line: line["index"])
    rows = {line["id"]: (line["answer"]["prediction"], line["label"], line["answer"]["confidence"], line["answer"].get("views")) for line in lines}
    timing = json.loads((folder / "timing.json").read_text())
    return rows, 1e3 * timing["adapt"] / len(rows)


def right(rows, ids):
    return np.array([rows[i][0] == rows[i][1] for i in ids])


def lines(folder):
    """One line per method and text: what it answered in every order."""
    for text in [text for text in TEXTS if (folder / text).is_dir()]:
        reference, _ = answers(folder / text / "any-order" / "zero-shot")
        ids = sorted(reference)
        for method in SINGLE + STREAM + SETS:
            orders = sorted((folder / text).glob(f"*/{method}"))
            if not orders:
                print(f"skipped: {method} with {text} has no run")
                continue
            runs = [answers(order) for order in orders]
            assert all(sorted(rows) == ids for rows, _ in runs), f"{method}: other images than zero-shot"
            yield text, method, right(reference, ids), [right(rows, ids) for rows, _ in runs], runs, ids


def table(args):
    """One row per method; per text: top-1 (95 %), lowest and highest of the orders, difference to zero-shot with its interval, fixed and broken
    images, Holm's p (bold below 0.05), ECE."""
    rows = list(lines(pathlib.Path(args.runs)))
    compared = [row for row in rows if row[1] != "zero-shot"]
    tests = [mcnemar(reference, orders[0]) for _, _, reference, orders, _, _ in compared]
    corrected = dict(zip([row[:2] for row in compared], zip(tests, holm([p for _, _, p in tests]))))
    texts = list(dict.fromkeys(row[0] for row in rows))
    print("| method |" + "".join(f" {text} | difference (95 %) | fixed / broken | p | ECE |" for text in texts))
    print("|---|" + "---:|---|---|---:|---:|" * len(texts))
    for method in dict.fromkeys(row[1] for row in rows):
        cells = [cell(row, corrected) for row in rows if row[1] == method]
        print(f"| {method} | " + " | ".join(cells) + " |")


def cell(row, corrected):
    text, method, reference, orders, runs, ids = row
    share = np.mean(orders, 0)
    top, low, high = interval(share)
    found = f"{top:.1f} ({low:.1f} to {high:.1f})"
    if len({o.mean() for o in orders}) > 1:
        found += f"; orders {100 * min(o.mean() for o in orders):.1f} to {100 * max(o.mean() for o in orders):.1f}"
    error = np.mean([ece([answers[i][2] for i in ids], right(answers, ids)) for answers, _ in runs])
    if method == "zero-shot":
        return f"{found} | - | - | - | {error:.1f}"
    difference, low, high = interval(share - reference)
    (fixed, broken, _), p = corrected[text, method]
    shown = f"**{p:.3f}**" if p < 0.05 else f"{p:.2f}"
    return f"{found} | {difference:+.1f} ({low:+.1f} to {high:+.1f}) | {fixed} / {broken} | {shown} | {error:.1f}"


def start(args):
    """Top-1 of OGA by quarter of the stream, with parts of its formula changed: capacity 1 leaves every mean the text feature."""
    out = pathlib.Path(args.out) / "start" / args.name
    print("| OGA | order | 1st quarter | 2nd | 3rd | 4th | zero-shot |\n|---|---|---:|---:|---:|---:|---|")
    for change in ["tau=0.05", "capacity=1", "unit_means=true", "batch=1", "tau=0.01"]:
        for order in range(1, 6):
            folder = out / change / f"order-{order}"
            evaluate(args, args.name, "photo", ["zero-shot", "oga"], folder, "--views", "64", "--order-seed", str(order), "--set", f"oga.{change}")
            shares = []
            for method in ["oga", "zero-shot"]:
                rows = list(answers(folder / method)[0].values())
                shares.append([100 * np.mean([row[0] == row[1] for row in part]) for part in np.array_split(np.array(rows, object), 4)])
            print(f"| {change} | {order} | " + " | ".join(f"{s:.1f}" for s in shares[0]) + " | " + ", ".join(f"{s:.1f}" for s in shares[1]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    for name, function in [("run", run), ("start", start)]:
        part = what.add_parser(name, help=function.__doc__ or "evaluate every method on NAME.csv of this folder")
        part.set_defaults(function=function)
        part.add_argument("name")
        for option in ["texts", "model", "cache", "out"]:
            part.add_argument(f"--{option}", required=True)
        part.add_argument("--flatclip", default="flatclip")
    part = what.add_parser("table", help="Markdown table of the runs of one set")
    part.set_defaults(function=table)
    part.add_argument("runs")
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
