"""A comparison as papers print it: a tuned prompt, several methods, several styles; a table, LaTeX and a figure.

    python python/examples/compare.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

import flatclip

out = Path(sys.argv[1] if len(sys.argv) > 1 else "comparison")
model = flatclip.load("pocket")
styles = ["pocket:photo", "pocket:sketch", "pocket:hard"]

prompt, summary = flatclip.tune(
    model, "pocket:photo", "sapt", shots=2, options={"train.epochs": 3}, out=out / "sapt", resume=True, progress=False
)
print(f"SAPT: {summary['steps']} steps, sharpness {summary['flatness']['sharpness']:.4f}")

runs = flatclip.Runs()
for name, given in {"template": "a photo of a {}.", "sapt": out / "sapt"}.items():
    runs += flatclip.evaluate(
        model, styles, ["zero-shot", "zero", "stss"], prompt=given, views=16, limit=24, out=out / "runs" / name, resume=True,
        progress=False,
    )  # fmt: skip

report = flatclip.report(out / "runs", paired=True)
print(report)
(out / "table.tex").write_text(report.tables[1]["latex"])
(out / "accuracy.svg").write_text(report.figures[0])

seen = flatclip.landscape(
    model, {"template": "a photo of a {}.", "sapt": prompt}, data="pocket:photo", shots=1, points=5, out=out / "landscape",
    progress=False,
)  # fmt: skip
print("flatness:", [round(row["sharpness"][0], 4) if "sharpness" in row else row for row in seen.flatness][:2])
print(f"table.tex, accuracy.svg and the landscape are in {out}")
