"""The same bytes as the command line, for every method, whatever the embedded model says."""

from __future__ import annotations

import filecmp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

ADAPTERS = flatclip.list_methods("adapter")
VIEWS = 8


def _needs(name: str) -> dict[str, Any]:
    return flatclip.method_info(name)["needs"]


def _servable(name: str) -> bool:
    """Statistics and generated images are made elsewhere; the two methods that need them are compared below."""
    return not (_needs(name)["statistics"] or _needs(name)["generated"])


def _model_for(name: str) -> str:
    return "pocket-vit" if _needs(name)["vit"] else "pocket"


@pytest.mark.parametrize("method", [name for name in ADAPTERS if flatclip.method_info(name)["kind"] != "batch"])
def test_predict_is_the_command_line(cli: Any, method: str, files: list[str], classes: list[str], tmp_path: Path) -> None:
    extra: dict[str, Any] = {}
    flags: list[str] = []
    name = _model_for(method)
    if _needs(method)["statistics"]:
        maple, stats = tmp_path / "maple", tmp_path / "statistics.safetensors"
        cli("tune", "--method", "maple", "--model", name, "--data", "pocket:photo", "--shots", 1, "--epochs", 1,
            "--set", "maple.depth=2", "--set", "maple.words=", "--out", maple)  # fmt: skip
        cli("stats", "--model", name, "--data", "pocket:photo::4", "--prompt", maple, "--out", stats)
        extra.update(prompt=maple, statistics=str(stats))
        flags = ["--prompt", str(maple), "--statistics", str(stats)]
    if _needs(method)["generated"]:
        for file in files:
            own = tmp_path / Path(file).stem
            own.mkdir()
            (own / "0.png").write_bytes(Path(files[0]).read_bytes())
        extra["generated"], flags = str(tmp_path), ["--generated", str(tmp_path)]
    some, views = files[:4], 4 if _needs(method)["pixels"] else VIEWS
    printed = cli(
        "predict", *some, "--model", name, "--classes", ",".join(classes), "--method", method, "--views", views,
        "--seed", 3, "--top", len(classes), "--json", *flags,
    )  # fmt: skip
    clf = flatclip.Classifier(name, classes, method=method, views=views, random_state=3, **extra)
    answers = clf.answer(some)
    for ours, theirs in zip(answers, printed["results"], strict=True):
        row = ours.to_dict(top=len(classes))
        assert row == {key: value for key, value in theirs.items() if key not in ("image", "schema_version")}
        probabilities = np.zeros(len(classes), np.float32)
        for entry in theirs["top"]:
            probabilities[entry["index"]] = np.float32(entry["probability"])
        assert (probabilities == ours.probabilities).all()


@pytest.mark.parametrize("method", [name for name in ADAPTERS if _servable(name)])
def test_evaluate_writes_the_files_of_the_command_line(cli: Any, method: str, tmp_path: Path) -> None:
    name, data = _model_for(method), "pocket:sketch::10"
    views = 2 if _needs(method)["pixels"] else VIEWS
    cli("eval", "--model", name, "--data", data, "--method", method, "--views", views, "--seeds", 2, "--no-cache", "--out",
        tmp_path / "cli", "--json")  # fmt: skip
    runs = flatclip.evaluate(name, data, method, views=views, seeds=2, out=tmp_path / "python", progress=False)
    same = ["predictions.jsonl", "summary.json", "config.toml", "run.json", "classes.txt"]
    _, different, missing = filecmp.cmpfiles(tmp_path / "cli", tmp_path / "python", same, shallow=False)
    assert not different and not missing
    assert runs[0]["summary"]["samples"] == 10


def test_tune_writes_the_files_of_the_command_line(cli: Any, tmp_path: Path) -> None:
    for method in ["coop", "sapt"]:
        cli("tune", "--method", method, "--data", "pocket:photo", "--shots", 2, "--epochs", 2, "--out", tmp_path / "cli" / method,
            "--seed", 1)  # fmt: skip
        flatclip.tune(
            "pocket", "pocket:photo", method, shots=2, seed=1, options={"train.epochs": 2}, out=tmp_path / "python" / method,
            progress=False,
        )  # fmt: skip
        same = ["prompt.safetensors", "summary.json", "metrics.jsonl", "config.toml", "run.json"]
        _, different, missing = filecmp.cmpfiles(
            tmp_path / "cli" / method, tmp_path / "python" / method, same, shallow=False
        )
        assert not different and not missing, method


def test_shards_merge_to_the_bytes_of_one_run(tmp_path: Path) -> None:
    common: dict[str, Any] = {"views": 4, "limit": 10, "progress": False}
    flatclip.evaluate("pocket", "pocket:hard", "stss", out=tmp_path / "whole", **common)
    for index in range(3):
        flatclip.evaluate("pocket", "pocket:hard", "stss", shard=f"{index}/3", out=tmp_path / "parts", **common)
    flatclip.merge(sorted((tmp_path / "parts").iterdir()), tmp_path / "merged")
    same = ["predictions.jsonl", "summary.json", "config.toml", "run.json"]
    assert filecmp.cmpfiles(tmp_path / "whole", tmp_path / "merged", same, shallow=False)[0] == same
