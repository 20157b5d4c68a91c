"""Answers: slices, pickles, skipped images, what they look like; half-precision features."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

CLASSES = ["fish", "cat", "lamp"]


@pytest.fixture(scope="module")
def clf(model: flatclip.Model) -> flatclip.Classifier:
    return flatclip.Classifier(model, CLASSES, method="stss", views=8, progress=False)


def same(a: flatclip.Answer, b: flatclip.Answer) -> bool:
    arrays = [(a.probabilities, b.probabilities), (a.scores, b.scores), (a.entropies, b.entropies)]
    return a.to_dict(3) == b.to_dict(3) and a.selected_views() == b.selected_views() and all(np.array_equal(x, y) for x, y in arrays)  # type: ignore[arg-type]


def test_slices(clf: flatclip.Classifier, images: list[np.ndarray]) -> None:
    answers = clf.answer(images)
    for key in [slice(2, 5), slice(None), slice(None, None, -1), slice(-3, None), slice(1, 9, 3), slice(50, 60)]:
        part = answers[key]
        assert isinstance(part, flatclip.Answers) and part.labels == answers.labels[key]
        assert part.positions.tolist() == list(range(len(images)))[key]
        assert all(same(a, b) for a, b in zip(part, list(answers)[key], strict=True))
    assert same(answers[-1], answers[len(answers) - 1]) and same(answers[np.int64(2)], answers[2])
    with pytest.raises(IndexError):
        answers[len(answers)]
    with pytest.raises(TypeError, match="expected a position or a slice, found str"):
        answers["cat"]  # type: ignore[call-overload]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(clf: flatclip.Classifier, images: list[np.ndarray], protocol: int) -> None:
    answers = clf.answer(images)
    copy = pickle.loads(pickle.dumps(answers, protocol))
    assert isinstance(copy, flatclip.Answers) and all(same(a, b) for a, b in zip(copy, answers, strict=True))
    assert (copy.probabilities == answers.probabilities).all() and copy[0].classes == CLASSES
    one = pickle.loads(pickle.dumps(answers[3], protocol))
    assert same(one, answers[3]) and one.views == 8 and one.label == answers[3].label
    assert clf.explain(images[0]).png == pickle.loads(pickle.dumps(clf.explain(images[0]), protocol)).png
    given = flatclip.adapt(np.ones((2, 4, 8)), np.eye(3, 8), 100.0)
    assert pickle.loads(pickle.dumps(given))[1].views is None


@pytest.fixture
def mixed(files: list[str], tmp_path: Path) -> list[Any]:
    """Six images, the second, fourth and sixth of which cannot be read."""
    (tmp_path / "broken.png").write_bytes(Path(files[0]).read_bytes()[:60])
    return [files[0], str(tmp_path / "broken.png"), files[1], str(tmp_path / "missing.png"), files[2], b"no image"]


@pytest.mark.parametrize("method", ["stss", "tda", "transclip"])
def test_bad_images_are_skipped_on_request(model: flatclip.Model, mixed: list[Any], method: str) -> None:
    clf = flatclip.Classifier(model, CLASSES, method=method, views=4, progress=False)
    with pytest.raises((ValueError, OSError)):
        clf.answer(mixed)
    with pytest.warns(UserWarning, match=r"3 of 6 images skipped; the first is number 1: .*broken\.png"):
        answers = clf.answer(mixed, errors="skip")
    assert answers.positions.tolist() == [0, 2, 4] and [place for place, _ in answers.skipped] == [1, 3, 5]
    assert "missing.png" in answers.skipped[1][1] and "3 skipped" in repr(answers)
    assert (answers.probabilities == clf.answer(mixed[::2]).probabilities).all(), "the others are answered as if alone"
    assert pickle.loads(pickle.dumps(answers)).skipped == answers.skipped


@pytest.mark.filterwarnings("ignore:.*images skipped")
def test_rows_stay_beside_their_images(clf: flatclip.Classifier, mixed: list[Any]) -> None:
    rows, names = clf.predict_proba(mixed, errors="skip"), clf.predict(mixed, errors="skip")
    assert rows.shape == (6, 3) and np.isnan(rows[1::2]).all() and names[1::2].tolist() == [None] * 3
    assert (rows[::2] == clf.predict_proba(mixed[::2])).all() and (names[::2] == clf.predict(mixed[::2])).all()
    nothing = clf.answer(mixed[1::2], errors="skip")
    assert len(nothing) == 0 and len(nothing.skipped) == 3 and np.isnan(clf.predict_proba(mixed[1], errors="skip")).all()
    assert clf.predict(mixed[::2], errors="skip").dtype.kind == "U", "nothing was skipped"
    with pytest.raises(ValueError, match="errors: expected 'raise' or 'skip', found 'ignore'"):
        clf.answer(mixed, errors="ignore")
    with pytest.raises(TypeError):
        clf.answer([np.zeros((4, 4, 3))], errors="skip")  # a mistake of the caller, not a bad image


def test_what_things_look_like(clf: flatclip.Classifier, images: list[np.ndarray], tmp_path: Path) -> None:
    answers = clf.answer(images)
    assert re.fullmatch(r"<flatclip.Answers for 12 images: (\w+ \d\.\d{4}, ){3}\.\.\.>", repr(answers))
    long = flatclip.Classifier("pocket", [f"class {i}" for i in range(1000)], method="stss", views=4, radius=0.25)
    assert "... 1000 in all]" in repr(long) and "radius=0.25" in repr(long) and len(repr(long)) < 200
    page = flatclip.Classifier("pocket", ["<cat>", "dog"], "zero-shot", tuner=None)._repr_html_()
    assert page.startswith("<table>") and "&lt;cat&gt;" in page and "<cat>" not in page and "not fitted" in page
    fitted = flatclip.Classifier("pocket", ["cat", "dog"], "zero-shot", tuner=None).fit(images[:2], ["cat", "dog"])
    assert "fitted" in fitted._repr_html_() and "not fitted" not in fitted._repr_html_()
    zero = flatclip.FeatureClassifier(np.eye(3, 8), 100.0, "tda")
    assert repr(zero) == "<flatclip.FeatureClassifier tda (online) of 3 classes>"
    assert repr(zero.stream()) == "<flatclip.FeatureStream of tda>"
    runs = flatclip.evaluate("pocket", "pocket:photo::4", "zero", views=2, out=tmp_path / "run", progress=False)
    assert repr(runs).startswith("<flatclip.Runs: 1 runs>\n  pocket:photo zero seed 0: top-1 ") and len(repr(runs)) < 120
    report = flatclip.report(tmp_path / "run")
    assert "1 runs" in repr(report) and repr(report.tables[0]).startswith("<flatclip.Table ")


def test_runs_as_a_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    runs = flatclip.evaluate(
        "pocket", "pocket:photo::4", ["zero", "stss"], prompt="a sketch of a {}.", seeds=[3, 4], views=2,
        options={"zero.fraction": 0.5, "stss.radius": 0.25}, out=tmp_path / "runs", progress=False,
    )  # fmt: skip
    frame = runs.to_pandas()
    assert frame["seed"].tolist() == [3, 4, 3, 4] and frame["method"].tolist() == ["zero", "zero", "stss", "stss"]
    assert (frame["prompt"] == "a sketch of a {}.").all()
    assert frame["options.radius"].tolist()[2:] == [0.25, 0.25] and frame["options.radius"].isna().tolist()[:2] == [True] * 2
    assert frame["options.fraction"].tolist()[:2] == [0.5, 0.5]
    assert all(row.keys() == runs.rows()[0].keys() for row in runs.rows())
    assert runs[0]["config"]["seed"] == 3


def test_probabilities_are_kept(cli: Any, tmp_path: Path) -> None:
    import json

    call: dict[str, Any] = {"views": 2, "progress": False}
    flatclip.evaluate("pocket", "pocket:photo::4", "zero", keep_probabilities=True, out=tmp_path / "kept", **call)
    flatclip.evaluate("pocket", "pocket:photo::4", "zero", out=tmp_path / "plain", **call)
    kept, plain = [
        [json.loads(line) for line in (tmp_path / name / "predictions.jsonl").read_text().splitlines()] for name in ["kept", "plain"]
    ]
    assert all(len(row["answer"]["log_probabilities"]) == 32 for row in kept)
    assert not any("log_probabilities" in row["answer"] for row in plain)
    cli("eval", "--model", "pocket", "--data", "pocket:photo::4", "--method", "zero", "--views", 2, "--keep-probabilities",
        "--no-cache", "--out", tmp_path / "cli", "--json")  # fmt: skip
    assert (tmp_path / "cli/predictions.jsonl").read_bytes() == (tmp_path / "kept/predictions.jsonl").read_bytes()


@pytest.mark.parametrize("method", ["zero", "tda", "transclip"])
def test_a_memory_map_of_halves_is_converted_in_parts(method: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    views, text = rng.normal(size=(2000, 16, 64)).astype(np.float16), rng.normal(size=(5, 64)).astype(np.float32)
    np.save(tmp_path / "views.npy", views)
    mapped = np.load(tmp_path / "views.npy", mmap_mode="r")
    expected = flatclip.adapt(views.astype(np.float32), text, 100.0, method).probabilities
    for name, given in {"map": mapped, "halves": views, "part of a map": mapped[100:], "doubles": views.astype(np.float64)}.items():
        tracemalloc.start()
        found = flatclip.adapt(given, text, 100.0, method)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if len(given) == len(views):
            assert (found.probabilities == expected).all(), name
        # All of it in float32 would be 8 MB. numpy's own memory is what tracemalloc sees.
        assert peak < 1 << 20, (name, peak)


TYPES = """
import numpy as np
import flatclip

many, one = np.ones((2, 4, 8)), np.ones((4, 8))
answers = flatclip.adapt(many, np.eye(3, 8), 100.0)
reveal_type(answers)
reveal_type(flatclip.adapt(one, np.eye(3, 8), 100.0))
reveal_type(flatclip.adapt([[[1.0, 2.0]]], np.eye(2), 100.0))
reveal_type(flatclip.adapt([one, one], np.eye(3, 8), 100.0))
reveal_type(answers[0])
reveal_type(answers[1:])
reveal_type(flatclip.Classifier().answer("a.jpg")[:2].labels)
"""


def test_mypy_knows_one_answer_from_many(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(TYPES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path / "use.py")],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    revealed = re.findall(r'Revealed type is "([^"]+)"', done.stdout)
    short = [name.replace("flatclip._native.", "").replace("builtins.", "") for name in revealed]
    assert short == ["Answers", "Answer", "Answers", "Answers", "Answer", "Answers", "list[str]"], done.stdout + done.stderr
    assert "error" not in done.stdout, done.stdout
