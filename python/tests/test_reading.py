"""The same file gets the same answer however it is given, and the same as from the command line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

FILES = sorted(p for p in (Path(__file__).parents[2] / "fixtures" / "reading").iterdir() if p.suffix != ".py")
CLASSES = ["fish", "lamp", "snail", "boat"]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"method": "stss", "views": 8},
    {"exif": False},
    {"method": "zero", "views": 8, "exif": False},
]


def _flags(settings: dict[str, Any]) -> list[str]:
    flags = [] if settings.get("exif", True) else ["--no-exif"]
    for name in ("method", "views"):
        if name in settings:
            flags += [f"--{name}", str(settings[name])]
    return flags


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_form_of_an_image_gives_the_answer_of_the_command_line(cli: Any, settings: dict[str, Any]) -> None:
    assert len(FILES) >= 12
    printed = cli("predict", *FILES, "--classes", ",".join(CLASSES), "--top", 4, "--json", *_flags(settings))
    clf = flatclip.Classifier("pocket", CLASSES, **settings)
    for file, row in zip(FILES, printed["results"], strict=True):
        expected = {key: value for key, value in row.items() if key not in ("image", "schema_version")}
        data = file.read_bytes()
        for form, given in [("path", file), ("text", str(file)), ("bytes", data), ("file", io.BytesIO(data))]:
            assert clf.answer([given])[0].to_dict(top=4) == expected, f"{file.name} as {form}"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_pil_image_keeps_its_exif_and_its_bits(settings: dict[str, Any]) -> None:
    image = pytest.importorskip("PIL.Image")
    operations = pytest.importorskip("PIL.ImageOps")
    clf = flatclip.Classifier("pocket", CLASSES, **settings)
    for file in FILES:
        expected = clf.answer([file])[0].to_dict(top=4)
        opened = image.open(file)
        assert clf.answer([opened])[0].to_dict(top=4) == expected, f"{file.name} as a PIL image"
        if opened.mode.startswith("I") and settings.get("exif", True):
            continue  # an array of 16-bit numbers is no image of 8 bits
        upright = operations.exif_transpose(opened) if settings.get("exif", True) else opened
        array = np.asarray(upright.convert("RGB"))
        assert clf.answer([array])[0].to_dict(top=4) == expected, f"{file.name} as an array"


def test_a_tensor_gives_the_answer_of_its_file() -> None:
    torch = pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    clf = flatclip.Classifier("pocket", CLASSES)
    file = next(file for file in FILES if file.name == "plain.jpg")
    tensor = torch.from_numpy(np.asarray(image.open(file)).copy()).permute(2, 0, 1)
    assert clf.answer([tensor])[0].to_dict() == clf.answer([file])[0].to_dict()


def test_features_follow_the_reading_rule(cli: Any, tmp_path: Path) -> None:
    model = flatclip.load("pocket")
    for exif, flags in [(True, []), (False, ["--no-exif"])]:
        rows = cli("embed", *FILES, "--json", *flags)["results"]
        ours = model.encode_image(FILES, exif=exif)
        assert (ours == np.array([row["features"] for row in rows], np.float32)).all()


def test_evaluate_on_own_images_applies_exif_unless_told_otherwise(tmp_path: Path) -> None:
    for index, file in enumerate(FILES):
        folder = tmp_path / "images" / CLASSES[index % 4]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.read_bytes())
    for exif, recorded in [(None, True), (True, True), (False, False)]:
        out = tmp_path / f"run-{exif}"
        flatclip.evaluate("pocket", f"folder:{tmp_path / 'images'}", exif=exif, out=out, progress=False)
        config = (out / "config.toml").read_text()
        assert ("exif = true" in config) == recorded
        assert 'method = "zero-shot"' in config


def test_a_sapt_prompt_is_answered_with_stss(tmp_path: Path) -> None:
    prompt, _ = flatclip.tune(
        "pocket", "pocket:photo::64", shots=1, options={"train.epochs": 1}, out=tmp_path / "run", progress=False
    )
    assert flatclip.Classifier("pocket", prompt=prompt, views=8).answer([FILES[0]])[0].to_dict()["method"] == "stss"
    assert flatclip.Classifier("pocket", CLASSES).answer([FILES[0]])[0].to_dict()["method"] == "zero-shot"
