"""The script of a user with a torch model and a method of one's own runs as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: the script of an own model is not run")

SCRIPT = Path(__file__).parents[1] / "examples" / "own_model.py"


def test_own_model(tmp_path: Path, folder: Path) -> None:
    words = [sys.executable, str(SCRIPT), str(folder), str(tmp_path / "out")]
    for _ in range(2):  # the second time everything is there
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert all(method in done.stdout for method in ("zero-shot", "zero", "mta", "tda", "sharp-mean")), done.stdout
