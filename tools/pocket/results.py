"""The tables of docs/research/pocket.md from demos that are done: `results.py "pocket, seed 0=DIR" ...`, DIR the demo's folder."""

import json
import pathlib
import sys

RULES = ["one", "entropy", "zero", "stss"]
TITLES = {"one": "one view", "entropy": "entropy", "zero": "ZERO", "stss": "STSS"}
SIGNS = {"seen": "seen", "not-seen": "not seen", "the-other-way": "**the other way**"}


def line(cells):
    print("| " + " | ".join(cells) + " |")


def table(header, rows):
    line(header)
    line(["---"] * len(header))
    for row in rows:
        line(row)
    print()


def accuracy(found):
    """Photos / mean of the shifts for every prompt and rule."""
    by = {(row["shots"] or 0, row["prompt"], row["rule"]): row for row in found["rows"]}
    prompts = list(dict.fromkeys((row["shots"] or 0, row["prompt"]) for row in found["rows"]))
    cell = lambda row: f"{100 * row['accuracy'][0]:.1f} / {100 * row['shifts']:.1f}"
    rows = [[str(shots or "-"), prompt, *(cell(by[shots, prompt, rule]) for rule in RULES)] for shots, prompt in prompts]
    table(["shots", "prompt", *(TITLES[rule] for rule in RULES)], rows)


def number(claim):
    mean, half = claim["difference"]["mean"], claim["difference"]["half"]
    return f"{mean:+.3f} ± {half:.3f}" if claim["place"] == "loss" else f"{100 * mean:+.1f} ± {100 * half:.1f}"


def claims(models):
    """Every claim, a column for each model."""
    of = lambda found: {(c["claim"], c["place"], c["shots"]): c for c in found["claims"]}
    found = [of(results) for results in models.values()]
    rows = []
    for key in found[0]:
        cells = [f"{number(f[key])}, {SIGNS[f[key]['verdict']]}" if key in f else "-" for f in found]
        rows.append([key[0], key[1], str(key[2] or "-"), *cells])
    table(["claim", "where", "shots", *models], rows)


models = {}
for argument in sys.argv[1:]:
    name, folder = argument.rsplit("=", 1)
    models[name] = json.loads((pathlib.Path(folder) / "results.json").read_text())
for name, results in models.items():
    size = f"{results['draws']} draws, {results['images_per_style']} images per style, {results['world']} world"
    chosen = [f"{s['shots']} shots {s['setting']}" for s in results["settings"] if s["chosen"] and s["tuner"] == "SAPT"]
    print(f"**{name}** ({size}), photos / mean of the shifts in percent; SAPT's radius: {', '.join(chosen)}.\n")
    accuracy(results)
print("Differences in points with 95 % intervals (flatness in nats).\n")
claims(models)
