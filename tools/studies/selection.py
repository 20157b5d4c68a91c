"""The experiment of docs/research/selection.md. `validation` runs every rule and chooses, `test` runs the chosen ones once, `real`
compares one rule with its control on photos. Each writes its table into the page.

    python3 tools/studies/selection.py validation|test [--count 160]
    python3 tools/studies/selection.py real --tower DIR --data DIR --prompts A B C --cache DIR
"""

import argparse
import pathlib
import re

from runs import ROOT, build, evaluate, paired, records, rights, table

PAGE = ROOT / "docs/research/selection.md"
MODELS = ["pocket", "pocket-vit"]
STYLES = ["sketch", "cartoon", "painting", "noise", "rendition", "hard"]  # the shifted ones
SEEDS = range(8)
TEMPLATES = ["an image of a {}.", "a drawing of a {}.", "an image of a {}.", "a {}.", "a photo of the {}.", "a photo of one {}."]
RELATIVE, NATURAL = "radius_unit=relative", ["lambda=0.857142857142857", "reduce=mean"]
# Options of stss, and of the control; `augmix` makes views of the rule, `natural` puts other templates around the prompt.
RULES = {
    "paper": {},
    "antithetic": {"options": ["directions=antithetic"]},
    "relative": {"options": [RELATIVE]},
    "jacobian": {"options": [RELATIVE, "directions=jacobian"]},
    "ascent": {"options": [RELATIVE, "directions=ascent"]},
    "margin": {"options": [RELATIVE, "surrogate=margin"]},
    "weighted": {"options": [RELATIVE, "fraction=0.5", "vote=score-weighted"], "control": ["fraction=0.5"]},
    "photometric": {"options": [RELATIVE], "augmix": True},
    "natural": {"options": NATURAL, "natural": True},
    "natural, ensemble": {"options": [*NATURAL, "vote_text=bank-mean"], "control": ["vote_text=bank-mean"], "natural": True},
}
HEADER = ["model", "rule", "control", "rule top-1", "difference", "95 %", "q", "c", "predicted", "rank corr.", "kept alike"]
NOTE = "top-1 in per cent over the six shifted styles; q, c, correlations and kept views alike (of 6, or of 32 for weighted): means over images"


def run(binary, at, folder, model, data, seed, options, natural, augmix):
    """One run of stss."""
    settings = ([] if any(one.startswith("vote=") for one in options) else ["vote=mean-probability"]) + options
    out = at / ",".join([*settings, *["natural"] * natural, *["augmix"] * augmix]).replace("=", "-")
    arguments = ["--model", model, "--data", data, "--method", "stss", "--seed", seed, "--views", 64, "--cache", folder / "cache"]
    arguments += [word for one in settings for word in ("--set", one)]
    arguments += [word for one in TEMPLATES if natural for word in ("--text-bank", one)]
    return evaluate(binary, out, *arguments, "--view-policy", "augmix" if augmix else "crop-flip")


def mean(values):
    return sum(values) / max(len(values), 1)


def spread(values):
    middle = mean(values)
    return mean([(value - middle) ** 2 for value in values]) ** 0.5


def correlation(x, y):
    a, b = mean(x), mean(y)
    return mean([(p - a) * (q - b) for p, q in zip(x, y)]) / max(spread(x) * spread(y), 1e-12)


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [rank for _, rank in sorted(zip(order, range(len(order))))]


def agreement(rule, control):
    """How far the scores of a rule follow the entropies of its control: q, c, predicted and rank correlation, views kept alike."""
    entropies = {one["id"]: one["answer"] for one in records(control) if one.get("answer")}
    for one in records(rule):
        answer, other = one.get("answer"), entropies.get(one["id"])
        if not answer or not other or len(answer["scores"]) != len(other["scores"]) or len(other["scores"]) < 3:
            continue
        score, entropy = answer["scores"], other["scores"]
        added = [a - b for a, b in zip(score, entropy)]
        q, c = spread(added) / max(spread(entropy), 1e-12), correlation(added, entropy)
        predicted = (1 + q * c) / max((1 + 2 * q * c + q * q) ** 0.5, 1e-12)
        yield q, c, predicted, correlation(ranks(score), ranks(entropy)), len(set(answer["selected"]) & set(other["selected"]))


def worlds(binary, folder, world, count, names):
    rows, best = [], []
    for model in MODELS:
        gains = {}
        for name in names:
            rule = {"options": [], "control": [], "natural": False, "augmix": False} | RULES[name]
            pairs, agreements = [], []
            for style in STYLES:
                for seed in SEEDS:
                    # A run over another number of images is another run, not one to resume.
                    at = folder / model / world / f"{style}-{count}" / f"seed-{seed}"
                    data = f"pocket:{style}:{world}:{count}"
                    ours = run(binary, at, folder, model, data, seed, rule["options"], rule["natural"], rule["augmix"])
                    control = run(binary, at, folder, model, data, seed, ["lambda=0", *rule["control"]], rule["natural"], False)
                    pairs.append((style, rights(ours), rights(control)))
                    agreements += agreement(ours, control)
            found, told = paired(pairs), [mean(column) for column in zip(*agreements)]
            gains[name] = found["difference"]
            interval = f"{found['low']:+.2f} to {found['high']:+.2f}"
            print(f"{model} {name}: {found['difference']:+.2f} ({interval})", flush=True)
            rows.append([model, name, f"{found['control']:.2f}", f"{found['rule']:.2f}", f"{found['difference']:+.2f}", interval,
                         *(f"{value:.3f}" for value in told[:4]), f"{told[4]:.2f}"])  # fmt: skip
        top = max(gains, key=gains.get)
        best.append(f"`{top}` on {model} ({gains[top]:+.2f})")
    title = f"The {world} world: {count} images of each style, {len(SEEDS)} seeds"
    text = table(title, HEADER, rows, NOTE)
    write(world, text + (f"\nChosen: {'; '.join(best)}\n" if world == "validation" else ""))


def real(binary, folder, chosen):
    photo, *beside = chosen.prompts
    rows = {}
    for name, options in {"entropy": ["lambda=0"], "mean of three": ["lambda=0.666666666666667", "reduce=mean"]}.items():
        arguments = ["--model", chosen.tower, "--precision", "i16", "--data", "imagenet", "--data-root", chosen.data, "--method", "stss"]
        arguments += ["--text-features", photo, "--views", 64, "--cache", chosen.cache]
        settings = ["vote=mean-probability", "vote_text=bank-mean", *options]
        arguments += [word for one in settings for word in ("--set", one)] + [word for one in beside for word in ("--text-bank", one)]
        rows[name] = evaluate(binary, folder / "real" / name.replace(" ", "-"), *arguments)
    ours, control = rights(rows["mean of three"]), rights(rows["entropy"])
    found = paired([("real", ours, control)])
    interval = f"{found['low']:+.2f} to {found['high']:+.2f}"
    lines = [["entropy at `photo`", f"{found['control']:.2f}", "-", "-"],
             ["mean entropy over three prompts", f"{found['rule']:.2f}", f"{found['difference']:+.2f}", interval]]  # fmt: skip
    note = "both vote with the mean text features of the three prompts; paired bootstrap over photos"
    title = f"{len(control)} real photos, CLIP ViT-B/16, i16, 64 views, seed 0"
    write("real", table(title, ["kept by", "top-1", "difference", "95 %"], lines, note))


def write(part, text):
    """Puts a part's text into the page, in the place of what it said before."""
    print(text)
    page, block = PAGE.read_text(), f"<!-- {part} -->\n{text.strip()}\n<!-- /{part} -->"
    pattern = re.compile(f"<!-- {part} -->.*?<!-- /{part} -->", re.S)
    end = "<!-- /selection -->"
    assert end in page, "the page has no place for results"
    PAGE.write_text(pattern.sub(lambda _: block, page) if pattern.search(page) else page.replace(end, f"{block}\n\n{end}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["validation", "test", "real"])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/selection", help="where runs are kept; a second call resumes")
    parser.add_argument("--count", type=int, default=160, help="images of each style")
    parser.add_argument("--tower")
    parser.add_argument("--data")
    parser.add_argument("--prompts", nargs=3, help="class embeddings of the prompt, then of the others")
    parser.add_argument("--cache")
    parser.add_argument("--binary", help="instead of building it")
    chosen = parser.parse_args()
    binary = chosen.binary or build()
    if chosen.what == "real":
        return real(binary, chosen.folder, chosen)
    names = list(RULES)
    if chosen.what == "test":
        line = re.search(r"^Chosen: (.*)$", PAGE.read_text(), re.M)
        assert line, "the page has no line `Chosen:`; run validation first"
        names = [name for name in RULES if name == "paper" or name in re.findall("`(.*?)`", line[1])]
    return worlds(binary, chosen.folder, chosen.what, chosen.count, names)


if __name__ == "__main__":
    main()
