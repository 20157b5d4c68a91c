"""Methods and losses of one's own beside the built-in ones."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

ROOT = Path(__file__).parents[2]
RUN = {"views": 4, "limit": 10, "progress": False}


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def own_vote(views: np.ndarray, text: np.ndarray, scale: float, *, temperature: float) -> np.ndarray:
    """Mean probability of all views."""
    return softmax(scale / temperature * views @ text.T).mean(0)


def own_vote_batch(views: np.ndarray, text: np.ndarray, scale: float) -> np.ndarray:
    return np.log(softmax(scale * views @ text.T).mean(1) + 1e-30)


def own_mean(views: np.ndarray, text: np.ndarray, scale: float) -> np.ndarray:
    centred = views[:, 0] - 0.1 * views[:, 0].mean(0)
    return softmax(scale * centred @ text.T)


class OwnCache:
    def __init__(self, text: np.ndarray, scale: float, *, rng: np.random.Generator, rate: float) -> None:
        self.text, self.scale, self.rate, self.seen = np.array(text), scale, rate, 0

    def answer(self, views: np.ndarray) -> np.ndarray:
        p = softmax(self.scale * views[0] @ self.text.T)
        self.text[p.argmax()] += self.rate * views[0]
        self.seen += 1
        return p


def own_random(views: np.ndarray, text: np.ndarray, scale: float, *, rng: np.random.Generator) -> np.ndarray:
    return rng.random(len(text))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Other tests see the built-in methods only."""
    temperature = flatclip.Option(1.0, minimum=0.1, maximum=10.0, doc="T")
    flatclip.register_adapter("own-vote", options={"temperature": temperature})(own_vote)
    flatclip.register_adapter("own-vote-batch", batch=True, returns="logits")(own_vote_batch)
    flatclip.register_adapter("own-mean", kind="batch", views=1)(own_mean)
    flatclip.register_adapter("own-cache", kind="online", options={"rate": 0.1}, views=2)(OwnCache)
    flatclip.register_adapter("own-random")(own_random)
    yield
    for name in [name for name in flatclip.list_methods("adapter") if name.startswith("own-")]:
        flatclip.unregister_adapter(name)
    with pytest.raises(flatclip.FlatclipError, match="not a registered one"):
        flatclip.unregister_adapter("zero")


def bytes_of(run: dict[str, Any]) -> bytes:
    return (Path(run["dir"]) / "predictions.jsonl").read_bytes()


def test_they_are_listed_with_their_options() -> None:
    assert {"own-vote", "own-cache", "own-mean"} <= set(flatclip.list_methods("adapter"))
    info = flatclip.method_info("own-vote")
    assert info["kind"] == "episodic" and info["summary"] == "Mean probability of all views."
    option = info["options"][0]
    assert (option["name"], option["default"], option["range"]) == ("temperature", 1.0, "from 0.1 to 10")
    assert re.fullmatch(r"version 1, source [0-9a-f]{16}", info["implementation"])
    assert flatclip.method_info("zero")["implementation"] is None


def test_evaluate_answers_as_the_built_in_twin(tmp_path: Path, model: flatclip.Model) -> None:
    methods = ["own-vote", "own-vote-batch", "own-mean", "own-cache", "vte", "zero"]
    runs = flatclip.evaluate(model, "pocket:sketch", methods, out=tmp_path / "runs", **RUN)
    assert [run["summary"]["failed"] for run in runs] == [0] * len(methods)
    own, batch = runs[0]["summary"]["metrics"], runs[1]["summary"]["metrics"]
    assert own["top1"] == batch["top1"] and own["calibration"]["ece"] == pytest.approx(batch["calibration"]["ece"], abs=1e-5)
    names = [row[0] for row in flatclip.report(tmp_path / "runs").tables[0]["rows"]]
    assert "template + own-cache" in names and "template + zero" in names


def test_answers_are_the_same_everywhere(model: flatclip.Model, images: list[np.ndarray], classes: list[str]) -> None:
    clf = flatclip.Classifier(model, classes, method="own-vote", views=4, temperature=2.0)
    features = clf.features(images)
    text = model.encode_text([f"a photo of a {name}." for name in classes])
    expected = [softmax(model.logit_scale / 2.0 * views @ text.T).mean(0) for views in features]
    assert np.abs(clf.answer(images).probabilities - expected).max() < 1e-4
    adapted = flatclip.adapt(features, text, model.logit_scale, "own-vote", temperature=2.0)
    assert np.abs(adapted.probabilities - expected).max() < 1e-4
    stream = flatclip.Classifier(model, classes, method="own-cache", views=2).stream()
    other = flatclip.Classifier(model, classes, method="own-cache", views=2).answer(images)
    assert [stream.answer(image).index for image in images] == list(other.predictions)
    clf.explain(images[0])


def test_draws_follow_seed_and_image_only(tmp_path: Path, model: flatclip.Model) -> None:
    def run(name: str, **keywords: Any) -> bytes:
        return bytes_of(flatclip.evaluate(model, "pocket:photo", "own-random", out=tmp_path / name, **{**RUN, **keywords})[0])

    assert run("a", seeds=1) == run("b", seeds=1) != run("c", seeds=2)
    shuffled = run("d", seeds=1, order_seed=3)
    flatclip.set_num_threads(1)
    try:
        assert run("e", seeds=1) == run("f", seeds=1)
    finally:
        flatclip.set_num_threads(0)
    records = [json.loads(line) for line in run("g", seeds=1).splitlines()]
    answers = {record["id"]: record["answer"] for record in records}
    for record in map(json.loads, shuffled.splitlines()):
        assert answers[record["id"]] == record["answer"]


def test_sweeps_know_options_and_ranges(tmp_path: Path, model: flatclip.Model) -> None:
    tables = flatclip.sweep(model, "pocket:photo", {"own-vote.temperature": [0.5, 2.0]}, "own-vote", out=tmp_path / "s", **RUN)
    assert len(next(iter(tables.values()))["rows"]) == 2
    with pytest.raises(flatclip.errors.OptionError, match="from 0.1 to 10"):
        flatclip.evaluate(model, "pocket:photo", "own-vote", options={"temperature": 99.0}, out=tmp_path / "x", **RUN)
    with pytest.raises(flatclip.errors.OptionError, match="temperature"):
        flatclip.evaluate(model, "pocket:photo", "own-vote", options={"temprature": 1.0}, out=tmp_path / "x", **RUN)
    with pytest.raises(flatclip.errors.OptionError):
        flatclip.Classifier(model, ["cat"], method="own-vote", nonsense=1)


def register(name: str, code: str, **keywords: Any) -> None:
    """Registers code that has no file."""
    space: dict[str, Any] = {"np": np, "__name__": "edited"}
    exec(textwrap.dedent(code), space)
    flatclip.register_adapter(name, **keywords)(space["answer"])


def test_an_edited_method_does_not_resume_an_old_run(tmp_path: Path, model: flatclip.Model) -> None:
    first = "def helper(x):\n    return x\ndef answer(views, text, scale):\n    return helper(np.ones(len(text)))\n"

    def run(**keywords: Any) -> Any:
        return flatclip.evaluate(model, "pocket:photo", "own-edited", out=tmp_path / "run", resume=True, **{**RUN, **keywords})

    register("own-edited", first)
    before = run()[0]
    register("own-edited", first)  # the same again
    assert bytes_of(run()[0]) == bytes_of(before)
    for code, version in [
        (first.replace("np.ones(len(text))", "np.ones(len(text)) * 2"), "1"),
        (first.replace("return x", "return x + 1"), "1"),
        (first, "2"),
    ]:
        register("own-edited", code, version=version)
        with pytest.raises(flatclip.errors.RunError, match="implementation"):
            run()
    register("own-edited", first)
    run()


def test_the_digest_sees_what_the_code_uses() -> None:
    from functools import partial

    from flatclip._methods import source_digest

    def digest(code: str, name: str = "answer", **given: Any) -> str:
        space: dict[str, Any] = {"np": np, "__name__": "edited", "partial": partial, **given}
        exec(textwrap.dedent(code), space)
        return source_digest(space[name])

    plain = "RATE = 1\ndef used():\n    return RATE\ndef unused():\n    return 1\ndef answer(v, t, s, k=2):\n    return used()\n"
    same = digest(plain)
    assert same == digest(plain) == digest(plain.replace("def unused():\n    return 1", "def unused():\n    return 2"))
    for before, after in [("RATE = 1", "RATE = 2"), ("return RATE", "return RATE + 1"), ("k=2", "k=3")]:
        assert digest(plain.replace(before, after)) != same, after
    table = "def make(x):\n    def answer(v, t, s):\n        return x\n    return answer\nanswer = make(X)\n"
    assert digest(table, X=np.ones(3)) == digest(table, X=np.ones(3)) != digest(table, X=np.zeros(3))
    bound = "def inner(v, t, s, k):\n    return k\nanswer = partial(inner, k=K)\n"
    assert digest(bound, K=1) == digest(bound, K=1) != digest(bound, K=2)
    stream = "class answer:\n    def __init__(self, t, s):\n        pass\n    def answer(self, v):\n        return 1\n"
    assert digest(stream) == digest(stream) != digest(stream.replace("return 1", "return 2"))


@pytest.mark.parametrize(
    "body, match",
    [
        ("raise ValueError('no such luck')", r"own-bad: image .*ValueError: no such luck .*line 3, in answer"),
        ("return np.ones(len(text) + 1)", r"expected an answer of shape \[\d+\], found"),
        ("return np.ones((1, len(text)))", "expected an answer of shape"),
        ("return np.full(len(text), np.nan)", "class 0 is NaN"),
        ("return -np.ones(len(text))", "class 0 is -1.*returns"),
        ("return np.zeros(len(text))", "sum to 0"),
        ("return 'cat'", "expected real numbers"),
        ("return None", "own-bad"),
        ("text[0] = 0; return np.ones(len(text))", "read-only"),
    ],
)
def test_bad_answers_end_the_run_and_name_the_method(tmp_path: Path, model: flatclip.Model, body: str, match: str) -> None:
    register("own-bad", f"def answer(views, text, scale):\n    pass\n    {body}\n")
    with pytest.raises(flatclip.errors.MethodError, match="own-bad") as caught:
        flatclip.evaluate(model, "pocket:photo", "own-bad", out=tmp_path / "run", **RUN)
    assert caught.value.code == "method.failed" and re.search(match, str(caught.value)), caught.value
    with pytest.raises(flatclip.errors.MethodError):
        flatclip.adapt(np.ones((3, 8)), np.eye(4, 8), 10.0, "own-bad")


def test_names_kinds_and_signatures_are_checked() -> None:
    def fine(views: Any, text: Any, scale: Any) -> Any:
        return np.ones(len(text))

    for name, match in [("zero", "built-in"), ("TDA", "small letters"), ("FGA", "small letters"), ("all", "meaning"), ("a.b", "small"), ("sapt", "meaning")]:
        with pytest.raises(flatclip.errors.OptionError, match=match):
            flatclip.register_adapter(name)(fine)
    with pytest.raises(flatclip.FlatclipError, match="episodic"):
        flatclip.register_adapter("own-kind", kind="sometimes")(fine)
    with pytest.raises(TypeError, match="signature"):
        flatclip.register_adapter("own-signature", options={"tau": 1.0})(fine)
    with pytest.raises(TypeError, match="class with a method"):
        flatclip.register_adapter("own-stream", kind="online")(fine)
    with pytest.raises(ValueError, match="batch=True"):
        flatclip.register_adapter("own-batch", kind="batch", batch=True)
    with pytest.raises(flatclip.errors.OptionError, match="default"):
        flatclip.register_adapter("own-range", options={"tau": flatclip.Option(5.0, maximum=1.0)})(lambda v, t, s, *, tau: np.ones(len(t)))
    with pytest.raises(TypeError, match="found dict"):
        flatclip.register_adapter("own-type", options={"tau": {}})(lambda v, t, s, *, tau: np.ones(len(t)))


def test_a_method_may_call_flatclip_itself(tmp_path: Path, model: flatclip.Model) -> None:
    @flatclip.register_adapter("own-nested", views=8)
    def nested(views: np.ndarray, text: np.ndarray, scale: float) -> np.ndarray:
        return flatclip.adapt(views, text, scale, "zero").probabilities

    runs = flatclip.evaluate(model, "pocket:photo", ["own-nested", "zero"], views=8, limit=20, out=tmp_path, progress=False)
    assert runs[0]["summary"]["metrics"]["top1"] == runs[1]["summary"]["metrics"]["top1"]


def test_a_vectorised_method_gets_many_images_in_one_call(tmp_path: Path, model: flatclip.Model) -> None:
    shapes: list[tuple[int, ...]] = []

    @flatclip.register_adapter("own-many", batch=True)
    def many(views: np.ndarray, text: np.ndarray, scale: float, *, rng: list[np.random.Generator]) -> np.ndarray:
        shapes.append(views.shape)
        assert len(rng) == len(views)
        return np.stack([generator.random(len(text)) for generator in rng])

    views, text = np.random.default_rng(0).normal(size=(40, 3, 8)), np.eye(4, 8)
    answers = flatclip.adapt(views, text, 10.0, "own-many").probabilities
    assert sum(shape[0] for shape in shapes) == 40 and max(shape[0] for shape in shapes) > 1
    alone = np.concatenate([flatclip.adapt(one[None], text, 10.0, "own-many").probabilities for one in views])
    assert (alone == answers).all(), "draws of an image do not depend on the others of a call"
    shapes.clear()
    flatclip.evaluate(model, "pocket:photo", "own-many", out=tmp_path / "run", **RUN)
    assert sum(shape[0] for shape in shapes) == 10


def test_interrupts_reach_a_slow_method(tmp_path: Path, model: flatclip.Model) -> None:
    @flatclip.register_adapter("own-slow", views=1)
    def slow(views: np.ndarray, text: np.ndarray, scale: float) -> np.ndarray:
        time.sleep(0.2)
        return np.ones(len(text))

    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        flatclip.evaluate(model, "pocket:photo", "own-slow", limit=400, out=tmp_path / "run", progress=False)
    assert time.monotonic() - start < 20


def test_ctrl_c_inside_a_method_ends_the_run_and_what_is_done_stays(tmp_path: Path, model: flatclip.Model) -> None:
    calls: list[int] = []

    @flatclip.register_adapter("own-stop", kind="online", views=1, version="1")
    class Stop:
        def __init__(self, text: np.ndarray, scale: float) -> None:
            self.classes = len(text)

        def answer(self, views: np.ndarray) -> np.ndarray:
            calls.append(1)
            if len(calls) == 5:
                raise KeyboardInterrupt
            return np.ones(self.classes)

    how: dict[str, Any] = {"limit": 8, "out": tmp_path / "run", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        flatclip.evaluate(model, "pocket:photo", "own-stop", **how)
    done = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    flatclip.evaluate(model, "pocket:photo", "own-stop", resume=True, **how)
    whole = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    assert whole.startswith(done) and len(whole.splitlines()) == 8


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    p = softmax(logits.astype(np.float64))
    rows = np.arange(len(labels))
    d = p.copy()
    d[rows, labels] -= 1
    return float(-np.log(p[rows, labels]).mean()), d / len(labels)


@pytest.mark.parametrize("method", ["coop", "sapt"])
def test_an_own_loss_tunes_as_the_built_in_one(tmp_path: Path, model: flatclip.Model, method: str) -> None:
    keywords = {"shots": 2, "options": {"train.epochs": 2}, "progress": False}
    own, summary = flatclip.tune(model, "pocket:photo", method, out=tmp_path / "own", loss=cross_entropy, **keywords)
    plain, _ = flatclip.tune(model, "pocket:photo", method, out=tmp_path / "plain", **keywords)
    assert np.abs(own.context - plain.context).max() < 1e-4 and summary["method"] == method
    with pytest.raises(flatclip.errors.RunError):
        flatclip.tune(model, "pocket:photo", method, out=tmp_path / "own", resume=True, **keywords)


def test_a_wrong_loss_is_told(tmp_path: Path, model: flatclip.Model) -> None:
    def attempt(loss: Any, method: str = "coop") -> None:
        keywords: dict[str, Any] = {"shots": 1, "options": {"train.epochs": 1}, "progress": False}
        flatclip.tune(model, "pocket:photo", method, out=tmp_path / "run", loss=loss, **keywords)

    def doubled(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
        value, d = cross_entropy(logits, labels)
        return value, 2 * d

    cases: list[tuple[Any, str]] = [
        (doubled, "finite differences"),
        (lambda logits, labels: 1.0, "expected \\(loss, d_logits\\)"),
        (lambda logits, labels: (1.0, np.ones((1, 1))), "shape"),
        (lambda logits, labels: (np.nan, logits), "nan|NaN"),
        (lambda logits, labels: 1 / 0, "ZeroDivisionError"),
    ]
    for loss, match in cases:
        with pytest.raises(flatclip.errors.MethodError, match=match):
            attempt(loss)
        shutil.rmtree(tmp_path / "run")
    with pytest.raises(flatclip.errors.OptionError, match="loss"):
        attempt(cross_entropy, "tip-adapter-f")


def test_the_tutorial_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/guide/own-method.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.S)
    assert 25 <= len([line for line in programs[0].splitlines() if line.strip()]) <= 45, "a method in about 40 lines"
    script = tmp_path / "own_method.py"
    script.write_text(programs[0])
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for row in ["zero-shot", "zero", "stss", "tda", "confident-views"]:
        assert f"+ {row}" in done.stdout, done.stdout
