"""Models of the user's own functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

CLASSES = ["cat", "fish", "lamp"]
BLANK = np.zeros((9, 9, 3), np.uint8)


def image(pixels: Any) -> Any:
    """Mean and deviation of each colour in four rows of the image."""
    rows = pixels.astype(np.float32).reshape(len(pixels), 3, 4, -1)
    return np.concatenate([rows.mean(3).reshape(len(pixels), -1), rows.std(3).reshape(len(pixels), -1)], 1) + 0.01


def text(texts: list[str]) -> Any:
    """Numbers that depend on the letters."""
    return np.stack([np.random.default_rng(sum(map(ord, one))).standard_normal(24) for one in texts])


def made(**changes: Any) -> Any:
    return flatclip.Encoder(**{"image": image, "text": text, "size": 32, "logit_scale": 20.0, "fingerprint": "test", **changes})


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def test_every_method_that_needs_no_gradient_runs(tmp_path: Path) -> None:
    model = made()
    runs = flatclip.evaluate(model, "pocket:sketch", ["zero-shot", "zero", "mta", "tda"], views=4, limit=6, out=tmp_path / "a", progress=False)
    assert [run["summary"]["samples"] for run in runs] == [6, 6, 6, 6]
    about = json.loads((tmp_path / "a" / "zero" / "run.json").read_text())
    assert about["weights"] == "test" and about["device"]["name"] == "callable"
    found = flatclip.Classifier(model, CLASSES, method="zero", views=4).predict_proba(BLANK)
    assert found.shape == (1, 3)


def test_bytes_and_floats_give_the_same_features(tmp_path: Path) -> None:
    mean, std = (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)
    kinds: list[str] = []

    def seen(pixels: Any) -> Any:
        kinds.append(pixels.dtype.name)
        return image(np.rint(pixels))

    for kind in ("uint8", "float32"):
        kinds.clear()
        model = made(image=seen, pixels=kind, mean=mean, std=std)
        flatclip.evaluate(model, "pocket:sketch", "zero", views=4, limit=5, out=tmp_path / kind, progress=False)
        assert set(kinds) == {kind}
    one, other = (records(tmp_path / kind) for kind in ("uint8", "float32"))
    assert [row["answer"]["prediction"] for row in one] == [row["answer"]["prediction"] for row in other]


def test_the_image_function_alone_works_with_class_embeddings(tmp_path: Path) -> None:
    rows = tmp_path / "text.npy"
    np.save(rows, text(flatclip.Dataset("pocket:sketch").classes).astype(np.float32))
    model = made(text=None)
    runs = flatclip.evaluate(model, "pocket:sketch", "zero", prompt=str(rows), views=4, limit=4, out=tmp_path / "run", progress=False)
    assert runs[0]["summary"]["samples"] == 4
    with pytest.raises(flatclip.FlatclipError, match="text tower"):
        flatclip.Classifier(model, CLASSES).predict(BLANK)


@pytest.mark.parametrize("method", ["tpt", "stss", "c-tpt"])
def test_what_the_functions_lack_is_refused_with_one_message(method: str) -> None:
    with pytest.raises(flatclip.FlatclipError, match="which the towers of this model do not compute") as found:
        flatclip.Classifier(made(), CLASSES, method=method).predict(BLANK)
    assert found.value.code == "method.needs"


def embedded(width: int = 16) -> dict[str, Any]:
    """A linear text encoder of embedded tokens, with its gradient by hand."""
    table = np.random.default_rng(0).standard_normal((49408, width)).astype(np.float32)
    weight = np.random.default_rng(1).standard_normal((width, 24)).astype(np.float32)
    place = np.linspace(0.5, 1.5, 77, dtype=np.float32)[None, :, None]

    def prompts(rows: Any, ids: Any) -> Any:
        return (rows * place).mean(1) @ weight

    def gradient(rows: Any, ids: Any, d: Any) -> Any:
        return np.broadcast_to((d @ weight.T)[:, None] / rows.shape[1], rows.shape) * place

    return {"text": None, "prompts": prompts, "text_gradient": gradient, "token_embedding": table}


def test_a_gradient_by_hand_serves_tpt_and_tune(tmp_path: Path) -> None:
    model = made(**embedded())
    tower = flatclip.TextTower(model, CLASSES, tokens=3)
    context = np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)
    d = np.random.default_rng(3).standard_normal((3, 24)).astype(np.float32)
    tower.forward(context)
    gradient = tower.gradient(d)
    step = np.random.default_rng(4).standard_normal(context.shape).astype(np.float32)
    change = [float((tower.forward(context + h * step) * d).sum()) for h in (1e-2, -1e-2)]
    assert (change[0] - change[1]) / 2e-2 == pytest.approx(float((gradient * step).sum()), rel=2e-2, abs=1e-3)
    assert flatclip.Classifier(model, CLASSES, method="tpt", views=4).predict_proba(BLANK).shape == (1, 3)
    prompt, summary = flatclip.tune(
        model, "pocket:photo", "coop", shots=1, options={"train.epochs": 1}, out=tmp_path / "run", progress=False
    )
    assert prompt.kind == "learned" and summary["method"] == "coop"


def test_autograd_gives_the_same_gradient() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: autograd is not tested")
    by_hand = embedded()
    table, place = torch.tensor(by_hand["token_embedding"]), torch.linspace(0.5, 1.5, 77)[None, :, None]
    weight = torch.tensor(np.random.default_rng(1).standard_normal((16, 24)).astype(np.float32))
    auto = {**by_hand, "prompts": lambda rows, ids: (rows * place).mean(1) @ weight, "text_gradient": "torch", "token_embedding": table}
    context = np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)
    found = []
    for functions in (by_hand, auto):
        tower = flatclip.TextTower(made(**functions), CLASSES, tokens=3)
        features = tower.forward(context)
        found.append((features, tower.gradient(np.ones_like(features))))
    assert np.allclose(found[0][0], found[1][0], atol=1e-5) and np.allclose(found[0][1], found[1][1], atol=1e-5)


class Broken:
    """An image function that fails after some calls."""

    def __init__(self, fail: Any, after: int) -> None:
        self.fail, self.after = fail, after

    def __call__(self, pixels: Any) -> Any:
        self.after -= 1
        return self.fail(pixels) if self.after < 0 else image(pixels)


def memory(_: Any) -> Any:
    raise MemoryError("CUDA out of memory")


FAULTS = {
    "shape": (lambda pixels: image(pixels)[1:], r"Encoder.image: expected features of shape \[4, 24\], found \[3, 24\]"),
    "width": (lambda pixels: image(pixels)[:, :5], r"Encoder.image: expected features of shape \[4, 24\], found \[4, 5\]"),
    "nan": (lambda pixels: image(pixels) * np.nan, "Encoder.image: expected finite features, found NaN"),
    "memory": (memory, "Encoder.image: MemoryError: CUDA out of memory"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_function_that_fails_ends_the_run_and_what_is_done_stays(fault: str, tmp_path: Path) -> None:
    fail, message = FAULTS[fault]
    how: dict[str, Any] = {"views": 4, "limit": 8, "out": tmp_path / "run", "progress": False}
    with pytest.raises(flatclip.errors.DeviceError, match=message) as found:
        flatclip.evaluate(made(image=Broken(fail, 4), batch_views=1), "pocket:sketch", "zero", **how)
    assert found.value.code == "device.failed"
    done = len(records(tmp_path / "run"))
    assert 0 < done < 8
    flatclip.evaluate(made(batch_views=1), "pocket:sketch", "zero", resume=True, **how)
    assert len(records(tmp_path / "run")) == 8


def interrupted(_: Any) -> Any:
    raise KeyboardInterrupt


def test_ctrl_c_inside_a_function_ends_the_run_and_what_is_done_stays(tmp_path: Path) -> None:
    how: dict[str, Any] = {"views": 4, "limit": 8, "out": tmp_path / "run", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        flatclip.evaluate(made(image=Broken(interrupted, 4), batch_views=1), "pocket:sketch", "zero", **how)
    done = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    assert 0 < len(records(tmp_path / "run")) < 8
    flatclip.evaluate(made(batch_views=1), "pocket:sketch", "zero", resume=True, **how)
    assert len(records(tmp_path / "run")) == 8 and (tmp_path / "run" / "predictions.jsonl").read_bytes().startswith(done)


TEXT_FAULTS = {
    "prompts": (lambda rows, ids: rows[:, 0, :3], None, r"Encoder.prompts: expected features of shape \[3, 24\], found \[3, 3\]"),
    "prompts-nan": (lambda rows, ids: np.full((len(rows), 24), np.nan), None, "Encoder.prompts: expected finite features, found NaN"),
    "gradient-shape": (None, lambda rows, ids, d: rows[:, :1], "Encoder.text_gradient: expected a finite gradient of shape"),
    "gradient-memory": (None, lambda rows, ids, d: memory(d), "Encoder.text_gradient: MemoryError: CUDA out of memory"),
}


@pytest.mark.parametrize("fault", TEXT_FAULTS)
def test_a_text_function_that_fails_is_named(fault: str) -> None:
    prompts, gradient, message = TEXT_FAULTS[fault]
    functions = embedded()
    functions = {**functions, **({"prompts": prompts} if prompts else {}), **({"text_gradient": gradient} if gradient else {})}
    with pytest.raises(flatclip.errors.DeviceError, match=message) as found:
        flatclip.Classifier(made(**functions), CLASSES, method="tpt", views=4).predict(BLANK)
    assert found.value.code == "device.failed"


def test_mistakes_are_told_before_any_work() -> None:
    with pytest.raises(TypeError, match="image: expected a function"):
        made(image=3)
    with pytest.raises(flatclip.FlatclipError, match=r"Encoder.text: expected features of shape \[1, 24\], found \[1, 5\]"):
        made(text=lambda texts: np.ones((len(texts), 5)))
    with pytest.raises(flatclip.FlatclipError, match="prompts and token_embedding"):
        made(prompts=text)
    with pytest.raises(flatclip.FlatclipError, match="text_gradient"):
        made(text_gradient="torch")
    with pytest.raises(flatclip.errors.DeviceError, match="Encoder.image: ZeroDivisionError"):
        made(image=lambda pixels: 1 / 0)
    with pytest.raises(flatclip.FlatclipError, match="pixels"):
        made(pixels="int4")


def test_another_fingerprint_neither_resumes_nor_shares_the_cache(tmp_path: Path) -> None:
    how: dict[str, Any] = {"views": 4, "limit": 4, "cache": tmp_path / "cache", "progress": False}
    flatclip.evaluate(made(), "pocket:sketch", "zero", out=tmp_path / "a", **how)
    again = flatclip.evaluate(made(), "pocket:sketch", "mta", out=tmp_path / "b", **how)
    assert again[0]["timing"]["cached"] == 4
    other = flatclip.evaluate(made(fingerprint="other"), "pocket:sketch", "mta", out=tmp_path / "c", **how)
    assert other[0]["timing"]["cached"] == 0
    with pytest.raises(flatclip.FlatclipError):
        flatclip.evaluate(made(fingerprint="other"), "pocket:sketch", "zero", out=tmp_path / "a", resume=True, **how)
