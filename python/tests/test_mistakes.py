"""Mistakes that are easily made: each is refused or warned of, in words that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

RNG = np.random.default_rng(0)
TEXT = RNG.normal(size=(5, 16)).astype(np.float32)
ROWS = RNG.normal(size=(8, 16)).astype(np.float32)
IMAGE = np.full((24, 24, 3), 120, np.uint8)


def _of_one_view() -> list[str]:
    infos = [flatclip.method_info(name) for name in flatclip.list_methods("adapter")]
    lacks = ["pixels", "vit", "generated", "statistics", "text_tower"]
    able = [info for info in infos if not any(info["needs"][need] for need in lacks)]
    return [info["name"] for info in able if info["kind"] == "batch" or info["needs"]["default_views"] == 1]


@pytest.mark.parametrize("method", _of_one_view())
def test_rows_have_two_readings_for_methods_of_one_view(method: str) -> None:
    for ask in [lambda x: flatclip.adapt(x, TEXT, 100.0, method), flatclip.FeatureClassifier(TEXT, 100.0, method)]:
        with pytest.raises(ValueError, match="two readings") as caught:
            ask(ROWS)
        text = str(caught.value)
        assert "view_features[:, None, :], of shape [8, 1, 16]" in text and "view_features[None], of shape [1, 8, 16]" in text
        assert method in text
    assert len(flatclip.adapt(ROWS[:, None, :], TEXT, 100.0, method)) == 8
    if method == "adte":  # estimates from images of two classes at least
        with pytest.raises(flatclip.errors.MethodError, match="needs two"):
            flatclip.adapt(ROWS[None], TEXT, 100.0, method)
        return
    assert len(flatclip.adapt(ROWS[None], TEXT, 100.0, method)) == 1
    assert flatclip.adapt(ROWS[:1], TEXT, 100.0, method).index == flatclip.adapt(ROWS[:1, None], TEXT, 100.0, method)[0].index


def test_there_are_methods_of_one_view_and_others() -> None:
    assert {"zero-shot", "transclip"} <= set(_of_one_view()) and "zero" not in _of_one_view()
    assert flatclip.adapt(ROWS, TEXT, 100.0, "zero").probabilities.shape == (5,)


def test_a_radius_has_no_effect_on_a_ready_bank() -> None:
    bank = flatclip.TextBank(np.stack([TEXT, TEXT + 0.01, TEXT - 0.01]))
    assert flatclip.adapt(ROWS, bank, 100.0, "stss").probabilities.shape == (5,)
    for options in [{"radius": 0.3}, {"rho": 0.3}, {"perturbations": 4}]:
        with pytest.raises(flatclip.errors.OptionError, match="no effect with a ready text bank"):
            flatclip.FeatureClassifier(bank, 100.0, "stss", **options)
        with pytest.raises(flatclip.errors.OptionError, match="no effect with a ready text bank"):
            flatclip.adapt(ROWS, bank, 100.0, "stss", **options)


def test_a_logit_scale_that_looks_like_its_logarithm() -> None:
    with pytest.raises(flatclip.errors.OptionError, match="logit_scale.*4.60.*logarithm.*100.0"):
        flatclip.FeatureClassifier(TEXT, float(np.log(100)), "zero")
    with pytest.raises(flatclip.errors.OptionError, match="logit_scale.*logarithm"):
        flatclip.adapt(ROWS, TEXT, 4.6, "zero")
    flatclip.FeatureClassifier(TEXT, 13.7, "zero")


def test_duplicate_classes() -> None:
    twice = ["cat", "dog", "cat", "fish", "bird"]
    with pytest.raises(flatclip.errors.OptionError, match="cat. occurs 2 times"):
        flatclip.FeatureClassifier(TEXT, 100.0, classes=twice)
    with pytest.warns(UserWarning, match=r"'cat' occurs 2 times \(positions 0, 2\)"):
        clf = flatclip.Classifier("pocket", twice, tuner=None)
    with pytest.raises(flatclip.errors.OptionError, match="cat. occurs 2 times"):
        clf.predict(IMAGE)
    with pytest.raises(ValueError, match="more than once"):
        clf.fit([IMAGE], ["dog"])


def test_an_edited_class_list_is_noticed() -> None:
    classes = ["cat", "dog"]
    clf = flatclip.Classifier("pocket", classes, method="zero-shot", tuner=None)
    assert clf.predict_proba(IMAGE).shape == (1, 2)
    classes[0] = "lamp"
    with pytest.warns(UserWarning, match="edited in place after the first answer"):
        changed = clf.predict_proba(IMAGE)
    assert clf.classes_.tolist() == ["dog", "lamp"]
    assert (changed == flatclip.Classifier("pocket", ["dog", "lamp"], method="zero-shot").predict_proba(IMAGE)).all()
    classes.append("fish")
    with pytest.warns(UserWarning, match="from 2 names to 3"):
        assert clf.predict_proba(IMAGE).shape == (1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(IMAGE)
        assert clf.set_params(classes=["a", "b"]).predict_proba(IMAGE).shape == (1, 2), "another list is no edit"
    learned = flatclip.Classifier("pocket", classes, method="zero-shot", tuner=None).fit([IMAGE], ["dog"])
    classes.pop()
    for ask in [learned.predict, learned.predict_proba, lambda x: learned.score([x], ["dog"])]:
        with pytest.raises(ValueError, match="changed after fit"):
            ask(IMAGE)


def test_an_edited_list_of_templates_is_noticed() -> None:
    templates = ["a photo of a {}."]
    clf = flatclip.Classifier("pocket", ["cat", "dog"], method="zero-shot", prompt=templates)
    before = clf.predict_proba(IMAGE)
    templates[0] = "a sketch of a {}."
    assert (clf.predict_proba(IMAGE) != before).any()


def test_misspelt_arguments_are_refused_at_construction() -> None:
    with pytest.raises(flatclip.errors.OptionError, match="vews: .* did you mean views") as caught:
        flatclip.Classifier("pocket", ["cat", "dog"], method="stss", vews=8)
    assert caught.value.code == "option.invalid"
    with pytest.raises(flatclip.errors.OptionError, match="vews: .* did you mean views"):
        flatclip.Classifier("pocket", ["cat", "dog"], vews=8)
    with pytest.raises(flatclip.errors.OptionError, match="did you mean radius"):
        flatclip.Classifier("pocket", ["cat", "dog"], method="stss", radios=0.3)
    with pytest.raises(flatclip.errors.OptionError, match="vews"):
        flatclip.Classifier("pocket", ["cat", "dog"], method="stss").set_params(vews=8)
    with pytest.raises(flatclip.errors.OptionError, match="fracton.*did you mean fraction"):
        flatclip.FeatureClassifier(TEXT, 100.0, "zero", fracton=0.2)
    assert flatclip.Classifier("pocket", ["cat"], method="stss", rho=0.2).options == {"rho": 0.2}, "an alias is a name"


@pytest.mark.parametrize("value", [None, "0", 1.5, True, np.random.RandomState(0)])
def test_a_seed_is_an_integer(value: Any) -> None:
    match = "random_state: expected an integer" + (".*None has no meaning: give 0" if value is None else "")
    with pytest.raises(TypeError, match=match):
        flatclip.Classifier("pocket", ["cat", "dog"], random_state=value).predict(IMAGE)
    with pytest.raises(TypeError, match=match):
        flatclip.Classifier("pocket", random_state=value).fit([IMAGE, IMAGE], ["cat", "dog"])
    with pytest.raises(TypeError, match=match):
        flatclip.adapt(ROWS, TEXT, 100.0, random_state=value)
    with pytest.raises(TypeError, match="seeds: expected an integer"):
        flatclip.evaluate("pocket", "pocket:photo::2", "zero", seeds=value, out="nowhere")
    with pytest.raises(ValueError, match="from 0 to"):
        flatclip.Classifier("pocket", ["cat", "dog"], random_state=-1).predict(IMAGE)


@pytest.mark.parametrize("value", ["64", 64.0, True])
def test_views_are_counted(value: Any, tmp_path: Path) -> None:
    match = rf"views: expected an integer or None, found {value!r} \({type(value).__name__}\)"
    with pytest.raises(TypeError, match=match):
        flatclip.Classifier("pocket", ["cat", "dog"], views=value).predict(IMAGE)
    with pytest.raises(TypeError, match=match):
        flatclip.evaluate("pocket", "pocket:photo::2", "zero", views=value, out=tmp_path / "run")
    assert flatclip.Classifier("pocket", ["cat", "dog"], "zero", views=np.int64(2)).answer(IMAGE)[0].views == 2


def test_labels_of_a_data_set_are_indices() -> None:
    with pytest.raises(TypeError, match=r"labels: expected indices into classes, found 'dog'.*classes.index\(name\)"):
        flatclip.Dataset.from_images([IMAGE], ["dog"], ["cat", "dog"])
    with pytest.raises(TypeError, match="expected indices into classes"):
        flatclip.Dataset.from_images([IMAGE], [-1], ["cat", "dog"])
    with pytest.raises(TypeError, match="expected indices into classes, found 'dog'"):
        flatclip.Dataset.from_images([IMAGE], "dog", ["cat", "dog"])
    assert flatclip.Dataset.from_images([IMAGE], np.array([1]), ["cat", "dog"]).labels.tolist() == [1]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "mps"])
def test_a_device_belongs_to_the_model(device: str) -> None:
    for make in [
        lambda: flatclip.Classifier("pocket", ["cat", "dog"], device=device),
        lambda: flatclip.adapt(ROWS, TEXT, 100.0, device=device),
    ]:
        with pytest.raises(flatclip.errors.OptionError, match="loaded onto its device") as caught:
            make()
        assert "flatclip.load" in (caught.value.hint or "")
    with pytest.raises(flatclip.errors.DeviceError, match="device"):  # without torch, or without this device
        flatclip.load("pocket", device=device)


def test_one_name_is_no_list_of_names(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"methods: expected a list of names, found one text: give methods=\['zero'\]"):
        flatclip.reproduce("pocket", methods="zero", out=tmp_path)
    with pytest.raises(TypeError, match="classes: expected a list of names"):
        flatclip.Classifier("pocket", "cat").predict(IMAGE)
    with pytest.raises(TypeError, match="classes: expected a list of names, found 0"):
        flatclip.Classifier("pocket", [0, 1]).predict(IMAGE)  # type: ignore[list-item]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_without_a_network_load_fails_at_once(endpoint: str, tmp_path: Path) -> None:
    code = "import flatclip, sys; flatclip.load('ViT-B-16/openai', model_dir=sys.argv[1], progress=False)"
    own = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "no_proxy": "*"}
    own.pop("HF_HUB_CACHE", None)
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=own, timeout=60)
    took = time.monotonic() - start
    assert done.returncode == 1 and "model folder" in done.stderr, done.stderr
    # A second for the refusal, the rest for the start of Python on a loaded machine; it was more than 15.
    assert took < 8, took
