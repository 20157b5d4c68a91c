"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_photos(tmp_path: Path, folder: Path) -> None:
    assert "views selected" in run("own_photos.py", tmp_path) and (tmp_path / "views.png").exists()
    assert run("own_photos.py", tmp_path, str(folder)).count(".png:") == 12


def test_open_clip_features(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("open_clip")
    printed = run("open_clip_features.py", tmp_path)
    assert [line.split()[0] for line in printed.splitlines()] == ["zero-shot", "zero", "mta", "tda", "stss"]


def test_compare(tmp_path: Path) -> None:
    printed = run("compare.py", tmp_path, "out")
    assert "sharpness" in printed and (tmp_path / "out/accuracy.svg").read_text().startswith("<svg")
    assert "tabular" in (tmp_path / "out/table.tex").read_text()
    assert (tmp_path / "out/landscape/landscape.html").exists()


def test_all_are_tested() -> None:
    names = {file.name for file in EXAMPLES.glob("*.py")}
    assert names == {"own_photos.py", "open_clip_features.py", "compare.py", "own_model.py"}  # the last in test_device_example.py
