"""Every adapter on every style of the pocket dataset with both embedded models, and what each gains on the shifted styles over
zero-shot, with intervals: docs/research/methods-on-pocket.md.

    python3 tools/studies/methods_table.py [--count 256] [--folder target/methods-table] [--binary FILE]
"""

import argparse
import json

from runs import ROOT, build, evaluate, paired, rights, table

MODELS = ["pocket", "pocket-vit"]
# The first is what the models were trained on.
STYLES = ["photo", "sketch", "cartoon", "painting", "noise", "rendition", "hard"]
HEAD = """# All methods on the pocket dataset

Written by `python3 tools/studies/methods_table.py --count {count}`. Top-1 in per cent with 95 % bootstrap intervals, {count} test
images of each style, template `a photo of a {{}}.`, 64 views (crop and flip), seed 0, the defaults of every method.
Online methods see the images in the order of the data set, batch methods a whole style at once. The last column
is the paired difference to zero-shot over the six shifted styles, with its interval. Methods that need what a
toy model lacks (generated images, token statistics, a MaPLe prompt) are skipped. Toy models promise
nothing about ImageNet. onzeta has temperatures of its own (0.01 and 0.04, made for CLIP's 100); these models have 14.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=256, help="images of each style")
    parser.add_argument("--folder", default=ROOT / "target/methods-table", help="where runs are kept; a second call resumes")
    parser.add_argument("--binary", help="instead of building it")
    arguments = parser.parse_args()
    binary, page = arguments.binary or build(), HEAD.format(count=arguments.count)
    for model in MODELS:
        # By style and method; data sets in a folder of their own have the names that `eval` gives them.
        found, order = {}, []
        for style in STYLES:
            folder = ROOT / arguments.folder / model / f"{style}-{arguments.count}"
            data = f"pocket:{style}:test:{arguments.count}"
            evaluate(binary, folder, "--model", model, "--data", data, "--method", "all", "--views", 64)
            for summary in sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime):
                told = json.loads(summary.read_text())
                found[style, told["method"]] = (told, summary.parent)
                order += [told["method"]] if told["method"] not in order else []
        rows = []
        for method in order:
            cells = []
            for style in STYLES:
                metrics = found[style, method][0]["metrics"]
                interval = metrics.get("top1_interval")
                span = f" ({100 * interval['low']:.0f}–{100 * interval['high']:.0f})" if interval else ""
                cells.append(f"{100 * metrics['top1']:.1f}{span}")
            gain = paired([(s, rights(found[s, method][1]), rights(found[s, "zero-shot"][1])) for s in STYLES[1:]])
            rows.append([method, *cells, f"{gain['difference']:+.1f} ({gain['low']:+.1f} to {gain['high']:+.1f})"])
        page += "\n" + table(f"`{model}`", ["method", *STYLES, "shifted - zero-shot"], rows)
    print(page)
    (ROOT / "docs/research/methods-on-pocket.md").write_text(page)


if __name__ == "__main__":
    main()
