"""Which choice of views: the candidates of the protocol against entropy selection, on features of a cache; any-time views."""

import argparse
import csv
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from methods import TEXTS, answers, evaluate, right
from paired import holm, interval, mcnemar
from safetensors.numpy import load_file

SCALE = 100.0
# Family -> its settings; a rule is a dictionary of settings, at most one of each of two families.
GRID = {
    "natural": [{"natural": True}],
    "tsallis": [{"q": q} for q in [0.1, 0.25, 0.5, 0.75, 2]],
    "soft": [{"beta": beta} for beta in [1, 2, 4, 8]],
    "count": [{"fraction": f, "views": 64} for f in [0.05, 0.2, 0.3, 0.5]]
    + [{"fraction": f, "views": 32} for f in [0.05, 0.1, 0.2, 0.3, 0.5]],
    "agreement": [{"agreement": True, "fraction": f} for f in [0.1, 0.3, 0.5]],
}
# Both set the fraction, or the cut is replaced.
EXCLUDED = [{"soft", "count"}, {"count", "agreement"}]


def load(args):
    """Unit features [n, V, D] and labels of the images of CSV files with the same classes, from the cache; the texts."""
    parts = [load_one(args, file) for file in args.csv.split(",")]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), parts[0][2]


def load_one(args, csv_file):
    name = pathlib.Path(csv_file).stem
    listed = json.loads(subprocess.run([args.flatclip, "--json", "cache", "ls", "--cache", args.cache], check=True, capture_output=True).stdout)
    entries = [e for e in listed["entries"] if e["key"]["dataset"].endswith(f":{name}.csv")]
    assert len(entries) == 1, f"{name}: expected one entry of the cache, found {len(entries)}"
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/features.safetensors"
        subprocess.run([args.flatclip, "-q", "cache", "export", entries[0]["id"], "--cache", args.cache, "--out", file],
                       check=True, stdout=subprocess.DEVNULL)
        features = load_file(file)["features"]
        with open(file, "rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            ids = json.loads(json.loads(opened.read(size))["__metadata__"]["flatclip"])["ids"]
    with open(csv_file) as lines:
        labels = {row["path"]: row["label"] for row in csv.DictReader(lines)}
    missing = set(labels) - set(ids)
    assert not missing, f"{name}: {len(missing)} of {len(labels)} images are not encoded yet"
    classes = 1000 if name.startswith("photos") else 16
    names = pathlib.Path(f"{args.texts}/classes-{classes}.txt").read_text().splitlines()
    number = {label: k for k, label in enumerate(names)} if classes == 16 else {str(k): k for k in range(1000)}
    rows = [i for i, name in enumerate(ids) if name in labels]
    texts = {t: load_file(f"{args.texts}/{t}-{classes}.safetensors")["text_features"] for t in [*TEXTS, "bare"]}
    return features[rows], np.array([number[labels[ids[i]]] for i in rows]), texts


def softmax(z):
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def tsallis(p, q=1.0):
    if q == 1:
        return -(p * np.log(np.maximum(p, 1e-300))).sum(-1)
    return (1 - (p**q).sum(-1)) / (q - 1)


def probabilities(image, texts):
    """Of each view with each text."""
    return {name: softmax(SCALE * (image @ text.T).astype(np.float64)) for name, text in texts.items()}


def answer(p, text, rule):
    """The class that a rule answers, from the probabilities of the views."""
    views = rule.get("views", 64)
    own = p[text][:views]
    scored = [p[name][:views] for name in ["photo", "bare", "gpt3"]] if rule.get("natural") else [own]
    score = np.mean([tsallis(each, rule.get("q", 1)) for each in scored], 0)
    if "beta" in rule:
        kept, weight = np.arange(len(own)), np.exp(-rule["beta"] * (score - score.min()))
    else:
        kept = np.argsort(score, kind="stable")[: max(1, int(rule.get("fraction", 0.1) * views))]
        weight = np.ones(len(kept))
    if rule.get("agreement"):
        weight = weight * (own[kept] @ own[kept].T).mean(1)
    return int((weight @ own[kept]).argmax())


def judged(features, labels, texts, rules):
    """Right or wrong [rule][text][image]."""
    found = np.zeros((len(rules), len(TEXTS), len(labels)), bool)
    for i, image in enumerate(features):
        p = probabilities(image, texts)
        for r, rule in enumerate(rules):
            for t, text in enumerate(TEXTS):
                found[r, t, i] = answer(p, text, rule) == labels[i]
    return found


def gains(found, control):
    """Points over the control with each text."""
    return 100 * (found.mean(-1) - control.mean(-1))


def choose(args):
    features, labels, texts = load(args)
    singles = [(family, rule) for family, rules in GRID.items() for rule in rules]
    found = judged(features, labels, texts, [{}] + [rule for _, rule in singles])
    points = gains(found[1:], found[0])
    best = {}
    for (family, rule), gain in zip(singles, points):
        print(f"{family:10} {json.dumps(rule):40} {np.round(gain, 1)} mean {gain.mean():+.2f}", file=args.log)
        # Equal gains: the first, which is the simpler one.
        if family not in best or round(gain.mean(), 6) > round(best[family][1].mean(), 6):
            best[family] = (rule, gain)
    names = list(best)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if {a, b} not in EXCLUDED]
    merged = [{**best[a][0], **best[b][0]} for a, b in pairs]
    both = gains(judged(features, labels, texts, merged), found[0])
    for (a, b), rule, gain in zip(pairs, merged, both):
        print(f"{a}+{b:10} {json.dumps(rule):40} {np.round(gain, 1)} mean {gain.mean():+.2f}", file=args.log)
    single = max(best, key=lambda family: round(best[family][1].mean(), 6))
    pair = int(np.round(both.mean(-1), 6).argmax())
    chosen = {single: best[single][0], "+".join(pairs[pair]): merged[pair]}
    print(json.dumps(chosen))


def test(args):
    chosen = json.loads(pathlib.Path(args.choice).read_text())
    features, labels, texts = load(args)
    found = judged(features, labels, texts, [{}, *chosen.values()])
    rows = [(name, text, found[0, t], found[1 + r, t]) for r, name in enumerate(chosen) for t, text in enumerate(TEXTS)]
    tests = [mcnemar(control, rule) for *_, control, rule in rows]
    print("| rule | text | control | rule | difference | 95 % | fixed / broken | p | p, Holm |\n|---|---|---:|---:|---:|---|---|---:|---:|")
    for (name, text, control, rule), (fixed, broken, p), corrected in zip(rows, tests, holm([p for *_, p in tests])):
        difference, low, high = interval(rule.astype(float) - control)
        print(f"| {name} {json.dumps(chosen[name])} | {text} | {100 * control.mean():.1f} | {100 * rule.mean():.1f} | {difference:+.1f} | "
              f"{low:+.1f} to {high:+.1f} | {fixed} / {broken} | {p:.4f} | {corrected:.4f} |")


def any_time(args):
    """Runs with any-time views against runs with all views, text photo."""
    out, methods = pathlib.Path(args.out) / "any-time" / args.name, ["zero", "vte", "mta", "stss"]
    evaluate(args, args.name, "photo", methods, out / "all", "--views", "64")
    print("| certainty | method | top-1, points | 95 % | agreement, % | share of views |\n|---|---|---:|---|---:|---:|")
    for certainty in args.certainties.split(","):
        evaluate(args, args.name, "photo", methods, out / certainty, "--views", "auto", "--certainty", certainty)
        for method in methods:
            (full, _), (few, _) = answers(out / "all" / method), answers(out / certainty / method)
            ids = sorted(full)
            difference, low, high = interval(right(few, ids).astype(float) - right(full, ids))
            same = 100 * np.mean([full[i][0] == few[i][0] for i in ids])
            share = np.mean([few[i][3] or 64 for i in ids]) / 64
            print(f"| {certainty} | {method} | {difference:+.1f} | {low:+.1f} to {high:+.1f} | {same:.1f} | {share:.2f} |")


def main():
    import sys

    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    for name, function in [("choose", choose), ("test", test), ("any-time", any_time)]:
        part = what.add_parser(name)
        part.set_defaults(function=function, log=sys.stderr)
        if name == "test":
            part.add_argument("choice")
        if name == "any-time":
            part.add_argument("name")
            part.add_argument("--certainties", default="0.5,0.6,0.7,0.8")
        options = ["texts", "cache"] + (["model", "out"] if name == "any-time" else ["csv"])
        for option in options:
            part.add_argument(f"--{option}", required=True)
        part.add_argument("--flatclip", default="flatclip")
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
