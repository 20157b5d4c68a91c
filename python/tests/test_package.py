"""Models, errors, data sets, reports, the command."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flatclip


def test_names_are_listed() -> None:
    assert "pocket" in flatclip.list_models() and all("ViT-B" in name for name in flatclip.list_models("ViT-B*"))
    assert set(flatclip.list_methods()) == {*flatclip.list_methods("adapter"), *flatclip.list_methods("tuner")}
    for name in flatclip.list_methods():
        info = flatclip.method_info(name)
        assert info["summary"] and info["docs"]
    assert re.match(r"\d+\.\d+\.\d+", flatclip.__version__)


def test_features_of_a_model(model: flatclip.Model, images: list[np.ndarray]) -> None:
    features, texts = model.encode_image(images), model.encode_text(["a photo of a cat.", "a photo of a dog."])
    assert features.shape == (len(images), model.width) and texts.shape == (2, model.width)
    assert features.dtype == np.float32 and np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    raw = model.encode_image(images, normalize=False)
    assert np.allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), features, atol=1e-5)
    assert np.allclose(model.encode_text("a photo of a cat."), texts[:1], atol=1e-6)
    logits = model.logit_scale * features @ texts.T
    clf = flatclip.Classifier(model, ["cat", "dog"], method="zero-shot")
    assert (clf.answer(images).predictions == logits.argmax(1)).all()


def test_a_model_is_pickled_by_how_it_was_loaded(model: flatclip.Model) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert copy == model and hash(copy) == hash(model) and copy.hash == model.hash
    reduce = model.__reduce__()
    with pytest.raises(flatclip.errors.ModelError, match="pickled model"):
        reduce[0](reduce[1][0], "another hash")


def test_folders_and_wrong_names(tmp_path: Path) -> None:
    with pytest.raises(flatclip.FlatclipError) as caught:
        flatclip.load("no-such-model", offline=True)
    error = caught.value
    assert error.code in dict(flatclip.errors.codes()) and pickle.loads(pickle.dumps(error)).code == error.code
    with pytest.raises(flatclip.FlatclipError):
        flatclip.load(f"local-dir:{tmp_path}")
    with pytest.raises(ValueError, match="precision"):
        flatclip.load("pocket", precision="f8")
    with pytest.raises(flatclip.errors.OptionError, match="did you mean"):
        flatclip.Classifier("pocket", ["a", "b"], method="ststs").predict(np.zeros((4, 4, 3), np.uint8))


def test_every_code_has_a_class_and_every_class_is_an_ordinary_error() -> None:
    for code, meaning in flatclip.errors.codes():
        error = flatclip.errors.make(code, "message", "hint")
        assert error.code == code and meaning and "message (hint)" == str(error)
        if code != "interrupted":
            assert type(error) is not flatclip.FlatclipError, code
            assert isinstance(error, (ValueError, OSError, RuntimeError))


def test_prompts(model: flatclip.Model, tmp_path: Path, images: list[np.ndarray]) -> None:
    classes = ["cat", "dog"]
    ways = ["a photo of a {}.", ["a photo of a {}."], flatclip.Prompt("a photo of a {}."), None]
    found = [flatclip.Classifier(model, classes, "zero", prompt=way, views=2).predict_proba(images[0]) for way in ways]
    assert all((one == found[0]).all() for one in found)
    rows = model.encode_text([f"a photo of a {name}." for name in classes])
    given = flatclip.Classifier(model, classes, "zero", prompt=rows, views=2).predict_proba(images[0])
    assert np.allclose(given, found[0], atol=1e-5)
    prompt, summary = flatclip.tune(
        model, "pocket:photo", "coop", shots=1, options={"train.epochs": 1}, out=tmp_path / "run", progress=False
    )
    assert prompt.context is not None and prompt.context.ndim == 2 and summary["steps"] > 0
    prompt.save(tmp_path / "mine.safetensors")
    assert flatclip.Prompt(tmp_path / "mine.safetensors") == prompt == pickle.loads(pickle.dumps(prompt))
    with pytest.raises(flatclip.FlatclipError):
        flatclip.Prompt("no such file")


def test_explanations(model: flatclip.Model, images: list[np.ndarray], tmp_path: Path) -> None:
    clf = flatclip.Classifier(model, ["<cat>", "dog"], method="stss", views=16)
    why = clf.explain(images[0])
    assert why.views == 16 and why.scores is not None and len(why.scores) == 16
    assert [view["index"] for view in why.selected_views] == why.answer.selected and why.selected_views[0]["label"] in ("<cat>", "dog")
    assert "&lt;cat&gt;" in why._repr_html_() and "<cat>" not in why._repr_html_()
    why.save(tmp_path / "views.png")
    assert (tmp_path / "views.png").read_bytes().startswith(b"\x89PNG")
    assert "views selected" in repr(why) and "views=16" in repr(clf)


def test_online_methods_have_streams(model: flatclip.Model, images: list[np.ndarray], classes: list[str]) -> None:
    clf = flatclip.Classifier(model, classes, method="tda", views=4)
    stream = clf.stream()
    assert [stream.answer(image).label for image in images] == list(clf.predict(images))


def test_data_sets(folder: Path, drawn: flatclip.Dataset) -> None:
    data = flatclip.Dataset(f"folder:{folder}")
    assert len(data) == len(drawn) and data.labels.shape == (len(drawn),)
    image, label = data[-1]
    assert image.dtype == np.uint8 and image.ndim == 3 and 0 <= label < len(data.classes)
    assert pickle.loads(pickle.dumps(data)).ids == data.ids
    with pytest.raises(IndexError):
        data[len(data)]
    memory = flatclip.Dataset.from_images([image], [0], ["cat", "dog"])
    assert (memory[0][0] == image).all()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(memory)
    with pytest.raises(flatclip.errors.DataError):
        flatclip.Dataset.from_images([image], [2], ["cat", "dog"])
    with pytest.raises(ValueError, match="as many"):
        flatclip.Dataset.from_images([image], [0, 1], ["cat", "dog"])


def test_evaluate_sweep_report_landscape(model: flatclip.Model, tmp_path: Path) -> None:
    runs = flatclip.evaluate(
        model, "pocket:hard", ["zero-shot", "zero"], views=4, limit=8, out=tmp_path / "runs", progress=False
    )
    assert [run["summary"]["method"] for run in runs] == ["zero-shot", "zero"] and "top1" in runs.rows()[0]
    frame = pytest.importorskip("pandas") and runs.to_pandas()
    assert list(frame["method"]) == ["zero-shot", "zero"] and "<table>" in runs._repr_html_()
    tables = flatclip.sweep(
        model, "pocket:hard", {"zero.fraction": [0.25, 0.5], "seed": [0, 1]}, "zero", views=4, limit=4,
        out=tmp_path / "sweep", progress=False,
    )  # fmt: skip
    table = tables["pocket:hard"]
    assert len(table["rows"]) == 4 and len(table.to_pandas()) == 4 and (tmp_path / "sweep/report.html").exists()
    report = flatclip.report(tmp_path / "runs", paired=True)
    assert len(report.runs) == 2 and "zero" in str(report) and report.figures[0].startswith("<svg")
    chosen = flatclip.report(tmp_path / "runs", reference="zero", order="given").tables[-1]
    assert chosen["rows"][0][:2] == ["template + zero-shot", "template + zero"]
    with pytest.raises(ValueError, match="rows: template"):
        flatclip.report(tmp_path / "runs", reference="mta")
    seen = flatclip.landscape(model, data="pocket:photo", shots=1, points=3, out=tmp_path / "land", progress=False)
    assert seen.surface().shape == (3, 3) and seen.figures[0].startswith("<svg") and (tmp_path / "land/landscape.html").exists()
    view = flatclip.landscape(
        model, {"usual": "a photo of a {}."}, image=np.full((40, 40, 3), 90, np.uint8), classes=["cat", "dog"], points=3,
        out=tmp_path / "view", progress=False,
    )  # fmt: skip
    assert len(view.figures) == 2
    with pytest.raises(ValueError, match="expected data="):
        flatclip.landscape(model, out=tmp_path / "nothing")


def test_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flatclip", "demo", "--quick", "--out", str(tmp_path / "demo")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "The report:" in done.stdout and (tmp_path / "demo").is_dir()
    listed = subprocess.run([sys.executable, "-m", "flatclip", "methods"], capture_output=True, text=True).stdout.split()
    assert listed == flatclip.list_methods()
