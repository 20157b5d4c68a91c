"""Images of the pocket dataset, the embedded models, and the command line to compare with."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip


def png(array: np.ndarray) -> bytes:
    """An 8-bit RGB PNG, so that no image library is needed."""
    height, width, _ = array.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(array))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture(scope="session")
def model() -> flatclip.Model:
    return flatclip.load("pocket")


@pytest.fixture(scope="session")
def vit() -> flatclip.Model:
    return flatclip.load("pocket-vit")


@pytest.fixture(scope="session")
def drawn() -> flatclip.Dataset:
    return flatclip.Dataset("pocket:photo::12")


@pytest.fixture(scope="session")
def images(drawn: flatclip.Dataset) -> list[np.ndarray]:
    return [drawn[i][0] for i in range(len(drawn))]


@pytest.fixture(scope="session")
def classes(drawn: flatclip.Dataset) -> list[str]:
    return drawn.classes


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, drawn: flatclip.Dataset) -> Path:
    """The images as files, one folder per class."""
    root = tmp_path_factory.mktemp("images")
    for index in range(len(drawn)):
        array, label = drawn[index]
        file = root / drawn.classes[label] / f"{index:03}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(png(array))
    return root


@pytest.fixture(scope="session")
def files(folder: Path) -> list[str]:
    return sorted(str(file) for file in folder.rglob("*.png"))


@pytest.fixture(scope="session")
def cli() -> Any:
    """Runs the binary `flatclip`; `FLATCLIP_BIN` names it, `cargo xtask python` does."""
    binary = os.environ.get("FLATCLIP_BIN") or shutil.which("flatclip")
    if not binary:
        pytest.skip("no flatclip binary: set FLATCLIP_BIN or run `cargo xtask python`")

    def run(*words: object) -> Any:
        done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    return run
