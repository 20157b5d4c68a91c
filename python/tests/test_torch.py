"""Towers that torch computes, against our own kernels. Torch runs on the CPU here; a GPU runs the same code. Golden cases are in
`test_torch_golden.py`, models of other libraries in `test_from_torch.py`."""

from __future__ import annotations

import filecmp
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

torch = pytest.importorskip("torch", reason="torch is not installed: its towers are not tested")

from flatclip.torch import Towers  # noqa: E402
from flatclip.torch._trial import best, trial  # noqa: E402

MODELS_OF_OTHER_FAMILIES = Path(__file__).parents[2] / "fixtures" / "golden" / "models"
IMAGES = [np.random.default_rng(seed).integers(0, 256, (70, 90, 3), dtype=np.uint8) for seed in range(4)]
TEXTS = ["a photo of a cat.", "two dogs", "a drawing of a lamp on a table"]
MODELS = ["pocket", "pocket-vit"]


@pytest.fixture(scope="module", params=MODELS)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A model on torch and on our kernels."""
    return flatclip.load(request.param, device="cpu"), flatclip.load(request.param, precision="f32")


def cosines(a: Any, b: Any) -> Any:
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    return (a.astype(np.float64) * b).sum(-1)


def close(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * max(1e-6, np.abs(expected).max())


def test_features_are_those_of_our_kernels(pair: tuple[Any, Any]) -> None:
    on_torch, ours = pair
    assert cosines(on_torch.encode_image(IMAGES), ours.encode_image(IMAGES)).min() >= 0.99999
    assert cosines(on_torch.encode_text(TEXTS), ours.encode_text(TEXTS)).min() >= 0.99999
    assert on_torch.hash == ours.hash
    assert on_torch.device["name"] == "torch cpu" and on_torch.device["lowest_cosine"] >= 0.99999
    assert ours.device is None


@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_contexts_and_their_gradients_are_those_of_our_kernels(pair: tuple[Any, Any], position: str) -> None:
    classes = [f"thing {n}" for n in range(40)] + ["a long name of a rare animal"]
    towers = [flatclip.TextTower(model, classes, tokens=4, position=position) for model in pair]
    context = (0.05 * np.random.default_rng(1).standard_normal((4, len(pair[1].embed_words("a")[0])))).astype(np.float32)
    features = [tower.forward(context) for tower in towers]
    close(features[0], features[1], 1e-5)
    d = np.random.default_rng(2).standard_normal(features[0].shape).astype(np.float32)
    close(towers[0].gradient(d), towers[1].gradient(d))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_within_its_bound(dtype: str, tmp_path: Path) -> None:
    try:
        with torch.autocast("cpu", getattr(torch, dtype)):
            torch.ones(2, 2) @ torch.ones(2, 2)
    except RuntimeError as error:
        pytest.skip(f"this torch has no {dtype} on the CPU: {error}")
    half = flatclip.load("pocket-vit", device="cpu", dtype=dtype)
    assert 0.995 <= half.device["lowest_cosine"] <= 1.0
    assert (half.encode_image(IMAGES) != flatclip.load("pocket-vit", device="cpu").encode_image(IMAGES)).any()
    ours = flatclip.load("pocket-vit", precision="f32")
    assert cosines(half.encode_image(IMAGES), ours.encode_image(IMAGES)).min() >= 0.995
    for model, name in ((half, "half"), (ours, "ours")):
        flatclip.evaluate(model, "pocket:sketch", ["zero", "tpt"], views=4, limit=4, out=tmp_path / name, progress=False)
    for method in ("zero", "tpt"):
        found, expected = (predictions(tmp_path / name / method) for name in ("half", "ours"))
        assert sum(answer_of(a) == answer_of(b) for a, b in zip(found, expected)) >= 3
    assert json.loads((tmp_path / "half" / "tpt" / "run.json").read_text())["device"]["dtype"] == dtype


EPISODIC = ["zero-shot", "zero", "mta", "stss", "tpt", "c-tpt", "sar", "tda", "dpe"]


def predictions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def answer_of(row: dict[str, Any]) -> int | None:
    """The class; None for an image that the method refuses."""
    return row["answer"]["prediction"] if row.get("answer") else None


def test_adapters_answer_alike(pair: tuple[Any, Any], tmp_path: Path) -> None:
    for model, name in zip(pair, ("torch", "ours")):
        flatclip.evaluate(model, "pocket:sketch", "all", views=8, limit=8, out=tmp_path / name, progress=False)
    methods = sorted(path.name for path in (tmp_path / "ours").iterdir())
    assert set(EPISODIC) <= set(methods) and methods == sorted(path.name for path in (tmp_path / "torch").iterdir())
    for method in methods:
        found, expected = (predictions(tmp_path / name / method) for name in ("torch", "ours"))
        assert [answer_of(row) for row in found] == [answer_of(row) for row in expected], method
    about = json.loads((tmp_path / "torch" / "zero" / "run.json").read_text())["device"]
    assert about["dtype"] == "float32" and about["versions"].startswith("torch ") and about["lowest_cosine"] > 0.999


@pytest.mark.parametrize("options", [{}, {"sar.adapt": "norms"}])
def test_norms_move_alike(pair: tuple[Any, Any], tmp_path: Path, options: dict[str, str]) -> None:
    """SAR on LayerNorms of the ViT and on BatchNorms of the ResNet."""
    for model, name in zip(pair, ("torch", "ours")):
        flatclip.evaluate(
            model, "pocket:sketch", "sar", views=8, limit=6, options={k.split(".")[1]: v for k, v in options.items()},
            keep_probabilities=True, out=tmp_path / name, progress=False,
        )  # fmt: skip
    found, expected = (predictions(tmp_path / name) for name in ("torch", "ours"))
    for a, b in zip(found, expected):
        close(np.exp(a["answer"]["log_probabilities"]), np.exp(b["answer"]["log_probabilities"]), 2e-3)


def test_a_model_of_another_family_does_what_it_does_on_our_kernels(tmp_path: Path) -> None:
    """SigLIP: no class token, attention pool, texts without mask; and what it lacks is refused alike."""
    folder = str(MODELS_OF_OTHER_FAMILIES / "tiny-siglip")
    on_torch, ours = flatclip.load(folder, device="cpu"), flatclip.load(folder, precision="f32")
    assert on_torch.device["lowest_cosine"] >= 0.99999
    assert cosines(on_torch.encode_image(IMAGES), ours.encode_image(IMAGES)).min() >= 0.99999
    assert cosines(on_torch.encode_text(["a cat", "dogs"]), ours.encode_text(["a cat", "dogs"])).min() >= 0.99999
    context = (0.05 * np.random.default_rng(1).standard_normal((3, len(ours.embed_words("a")[0])))).astype(np.float32)
    for position in ("end", "middle", "front"):
        towers = [flatclip.TextTower(model, ["cat", "dog", "lamp"], tokens=3, position=position) for model in (on_torch, ours)]
        features = [tower.forward(context) for tower in towers]
        close(features[0], features[1], 1e-5)
        d = np.random.default_rng(2).standard_normal(features[0].shape).astype(np.float32)
        close(towers[0].gradient(d), towers[1].gradient(d))
    refused = []
    for model in (on_torch, ours):
        with pytest.raises(flatclip.FlatclipError) as no_norms:
            flatclip.Classifier(model, ["cat", "dog"], method="sar", views=4, adapt="norms").predict(IMAGES[0])
        with pytest.raises(flatclip.FlatclipError) as no_prompts:
            flatclip.tune(model, "pocket:photo", "maple", shots=1, out=tmp_path / "maple", progress=False)
        refused.append((no_norms.value.code, no_norms.value.message, no_prompts.value.code))
    assert refused[0] == refused[1]
    for model, name in ((on_torch, "torch"), (ours, "ours")):
        flatclip.evaluate(model, "pocket:sketch", ["zero", "tpt", "stss"], views=4, limit=4, out=tmp_path / name, progress=False)
    for method in ("zero", "tpt", "stss"):
        found, expected = (predictions(tmp_path / name / method) for name in ("torch", "ours"))
        assert [answer_of(row) for row in found] == [answer_of(row) for row in expected], method


def losses_of(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_maple_tunes_alike(tmp_path: Path) -> None:
    scores = {}
    for name, model in (("torch", flatclip.load("pocket-vit", device="cpu")), ("ours", flatclip.load("pocket-vit", precision="f32"))):
        flatclip.tune(
            model, "pocket:photo", "maple", shots=1, options={"train.epochs": 1, "maple.depth": 3, "maple.words": ""}, out=tmp_path / name, progress=False
        )
        scores[name] = losses_of(tmp_path / name)
    assert len(scores["torch"]) > 2
    close(scores["torch"], scores["ours"], 1e-3)


def test_twenty_steps_of_sapt_agree(tmp_path: Path) -> None:
    losses = {}
    for name, model in (("torch", flatclip.load("pocket", device="cpu")), ("ours", flatclip.load("pocket", precision="f32"))):
        flatclip.tune(
            model, "pocket:photo", "sapt", shots=1, options={"train.epochs": 5, "train.batch": 8}, out=tmp_path / name, progress=False
        )
        losses[name] = losses_of(tmp_path / name)[:20]
    assert len(losses["torch"]) == 20
    assert np.abs(np.array(losses["torch"]) - losses["ours"]).max() <= 1e-4


def test_the_classifier_the_landscape_and_the_sweep_work(tmp_path: Path) -> None:
    model = flatclip.load("pocket", device="cpu")
    found = flatclip.Classifier(model, ["cat", "fish", "lamp"], method="tpt", views=4).predict_proba(IMAGES)
    ours = flatclip.Classifier(flatclip.load("pocket", precision="f32"), ["cat", "fish", "lamp"], method="tpt", views=4)
    close(found, ours.predict_proba(IMAGES), 2e-3)
    shown = flatclip.landscape(model, out=tmp_path / "land", data="pocket:photo", shots=1, points=3, progress=False)
    assert np.isfinite(shown.surface()).all()
    tables = flatclip.sweep(
        model, "pocket:sketch", {"stss.radius": [0.1, 0.5]}, views=4, limit=4, out=tmp_path / "sweep", progress=False
    )
    assert len(next(iter(tables.values()))["rows"]) == 2


def test_a_pickled_model_is_loaded_onto_its_device_again() -> None:
    model = flatclip.load("pocket", device="cpu", dtype="bfloat16")
    again = pickle.loads(pickle.dumps(model))
    assert again == model and again.device == model.device
    assert model.device["versions"] == f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    assert again != flatclip.load("pocket")


class Stop(Exception):
    """Raised by a watcher in the middle of a run."""


class StopAfter:
    """A watcher that ends the run after some images."""

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self, stage: str, total: int | None) -> None: ...
    def note(self, text: str) -> None: ...
    def finish(self) -> None: ...
    def advance(self, done: int, status: str) -> None:
        if done >= self.count:
            raise Stop


def test_a_resumed_run_ends_with_the_same_bytes_and_another_device_is_refused(tmp_path: Path) -> None:
    model = flatclip.load("pocket", device="cpu")
    how: dict[str, Any] = {"views": 8, "limit": 60}
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=tmp_path / "whole", progress=False, **how)
    cut = tmp_path / "cut"
    with pytest.raises(Stop):
        flatclip.evaluate(model, "pocket:sketch", "tpt", out=cut, progress=StopAfter(3), **how)
    done = len(predictions(cut))
    assert 0 < done < 60
    with pytest.raises(flatclip.FlatclipError, match="precision"):
        flatclip.evaluate("pocket", "pocket:sketch", "tpt", out=cut, resume=True, progress=False, **how)
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=cut, resume=True, progress=False, **how)
    for name in ("predictions.jsonl", "summary.json", "config.toml", "run.json"):
        assert filecmp.cmp(tmp_path / "whole" / name, cut / name, shallow=False), name


KILLED = """
import sys, flatclip
flatclip.evaluate(flatclip.load("pocket", device="cpu"), "pocket:sketch", "tpt", views=8, limit=60, out=sys.argv[1], progress=False)
"""


def test_a_killed_run_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    cut, how = tmp_path / "cut", {"views": 8, "limit": 60}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(cut)])
    records, deadline = cut / "predictions.jsonl", time.monotonic() + 120
    while not (records.exists() and records.stat().st_size) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert 0 < len(records.read_bytes().splitlines()) < 60
    model = flatclip.load("pocket", device="cpu")
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=cut, resume=True, progress=False, **how)
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=tmp_path / "whole", progress=False, **how)
    for name in ("predictions.jsonl", "summary.json"):
        assert filecmp.cmp(tmp_path / "whole" / name, cut / name, shallow=False), name


def test_a_device_without_memory_ends_the_run_and_names_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, own, calls = flatclip.load("pocket", device="cpu"), Towers.images, []

    def images(self: Towers, pixels: Any) -> Any:
        calls.append(len(pixels))
        if len(calls) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return own(self, pixels)

    monkeypatch.setattr(Towers, "images", images)
    with pytest.raises(flatclip.errors.DeviceError, match="images: .*out of memory") as found:
        flatclip.evaluate(model, "pocket:sketch", "zero", views=4, limit=8, out=tmp_path, progress=False)
    assert found.value.code == "device.failed" and 0 < len(predictions(tmp_path)) < 8


def test_the_size_of_a_call_is_found_by_a_trial() -> None:
    assert best({64: 100.0, 128: 180.0, 256: 200.0, 512: 205.0, 1024: 206.0}.get) == 256
    assert best({64: 100.0, 128: 101.0}.get) == 64, "larger calls bring nothing"
    assert best({64: 100.0, 128: 190.0}.get) == 128, "there is no memory for more"
    with pytest.raises(flatclip.errors.DeviceError, match="no memory for 64 views"):
        best(lambda size: None)


def test_calls_on_a_device_have_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device other than the CPU does, here on the CPU: the trial runs, and the last call is filled up."""
    weights = flatclip._native.open_weights("pocket-vit", offline=True)
    tensors = {name: torch.from_numpy(weights.tensor(name)) for name in weights.names()}
    towers, side = Towers(tensors, weights.config, device=torch.device("cpu")), weights.config["image_size"]
    monkeypatch.setattr("flatclip.torch._trial.SIZES", (64, 128))
    assert trial(towers, side) in (64, 128)
    towers.fixed, towers.batch_views, sizes, own = True, 64, [], towers.image

    def image(pixels: Any) -> Any:
        sizes.append(len(pixels))
        return own(pixels)

    towers.image = image
    pixels = np.random.default_rng(5).integers(0, 256, (70, 3, side, side), dtype=np.uint8)
    found = towers.images(pixels)
    assert sizes == [64, 64] and len(found) == 70
    towers.fixed = False
    close(found, towers.images(pixels), 1e-5)


def test_what_is_not_there_is_refused_and_nothing_falls_back() -> None:
    with pytest.raises(flatclip.errors.DeviceError, match="cuda"):
        flatclip.load("pocket", device="cuda")
    with pytest.raises(flatclip.FlatclipError, match="device 'nonsense'"):
        flatclip.load("pocket", device="nonsense")
    with pytest.raises(flatclip.FlatclipError, match="dtype"):
        flatclip.load("pocket", device="cpu", dtype="int8")
    with pytest.raises(flatclip.FlatclipError, match="precision"):
        flatclip.load("pocket", device="cpu", precision="i16")
    with pytest.raises(flatclip.FlatclipError, match="dtype"):
        flatclip.load("pocket", dtype="float16")


def test_a_device_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Towers.images
    monkeypatch.setattr(Towers, "images", lambda self, pixels: own(self, pixels)[:, ::-1].copy())
    with pytest.raises(flatclip.errors.DeviceError, match=r"lowest cosine.*expected at least 0.999"):
        flatclip.load("pocket", device="cpu")


COMMANDS = {
    "eval": ("eval pocket:sketch --method zero --views 4 --limit 4", "top-1"),
    "sweep": ("sweep pocket:sketch --axes stss.radius=0.1,0.5 --views 4 --limit 4", "radius"),
    "tune": ("tune pocket:photo --method coop --shots 1 --options train.epochs=1", "method: coop"),
    "landscape": ("landscape --data pocket:photo --shots 1 --points 3", "Landscape"),
    "reproduce": (
        "reproduce pocket --limit 4 --views 4 --shots 1 --epochs 1 --methods zero-shot --datasets pocket:sketch", "zero-shot"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_run_on_a_device(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flatclip.__main__ import main

    words, shown = COMMANDS[name]
    assert main([*words.split(), "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
    assert shown in capsys.readouterr().out
    recorded = "".join(file.read_text() for kind in ("config.toml", "run.json") for file in tmp_path.rglob(kind))
    assert name == "landscape" or "torch cpu float32" in recorded


def test_reproduce_through_torch_gives_our_tables(tmp_path: Path) -> None:
    how: dict[str, Any] = {
        "limit": 12, "views": 4, "shots": 1, "epochs": 1, "datasets": ["pocket:sketch"], "methods": ["zero-shot", "zero", "stss"],
        "progress": False,
    }  # fmt: skip
    ours = flatclip.reproduce("pocket", flatclip.load("pocket", precision="f32"), out=tmp_path / "ours", **how)
    found = flatclip.reproduce("pocket", flatclip.load("pocket", device="cpu"), out=tmp_path / "torch", **how)
    assert not found["open"] and found["steps"] == ours["steps"]
    assert found["text"] == ours["text"]
    plan = flatclip.reproduce("pocket", flatclip.load("pocket", device="cpu"), out=tmp_path / "plan", plan=True, **how)
    assert plan["seconds"] > 0 and "in all" in str(plan)
