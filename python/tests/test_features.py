"""Methods on features of any model."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import flatclip


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    text = rng.normal(size=(12, 32)).astype(np.float32)
    views = text[rng.integers(0, 12, 20)][:, None] + 0.8 * rng.normal(size=(20, 16, 32))
    return views.astype(np.float32), text


def _from_features() -> list[str]:
    infos = [flatclip.method_info(name) for name in flatclip.list_methods("adapter")]
    lacks = ["pixels", "vit", "generated", "statistics", "text_tower"]
    return [info["name"] for info in infos if not any(info["needs"][need] for need in lacks)]


@pytest.mark.parametrize("method", _from_features())
def test_every_method_that_needs_features_alone(method: str, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    views, text = arrays
    made = flatclip.FeatureClassifier(text, 100.0, method)
    answers = made(views)
    assert answers.probabilities.shape == (20, 12) and len(answers) == 20
    assert np.allclose(answers.probabilities.sum(1), 1, atol=1e-4)
    assert (answers.predictions == [answer.index for answer in answers]).all()
    if made.kind == "episodic":
        alone = [flatclip.adapt(one[None], text, 100.0, method).probabilities for one in views]
        assert (np.concatenate(alone) == answers.probabilities).all(), "a batch answers as its images do alone"
    if made.kind == "online":
        stream = made.stream()
        assert [stream.answer(one).index for one in views] == list(answers.predictions)


def test_a_bank_from_an_encoder_is_the_bank_of_stss(model: flatclip.Model, images: list[np.ndarray]) -> None:
    """Our own text tower as the foreign encoder: the same selection, the same bytes."""
    classes = ["cat", "dog", "fish", "lamp", "boat"]
    clf = flatclip.Classifier(model, classes, method="stss", views=16, random_state=7)
    context = model.embed_words("a photo of a")
    tower = flatclip.TextTower(model, classes, tokens=len(context))
    bank = flatclip.TextBank.from_encoder(tower.encode, context, random_state=7, batch_size=5)
    views = clf.features(images)
    theirs = flatclip.adapt(views, bank, model.logit_scale, method="stss", classes=classes)
    ours = clf.answer(images)
    assert [a.selected for a in theirs] == [a.selected for a in ours]
    assert np.abs(theirs.probabilities - ours.probabilities).max() < 1e-5
    assert (pickle.loads(pickle.dumps(bank)).features == bank.features).all()


def test_a_wrong_encoder_is_told(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    context = np.ones((4, 8), np.float32)
    with pytest.raises(ValueError, match="encode: expected text features"):
        flatclip.TextBank.from_encoder(lambda contexts: np.ones(3), context)
    with pytest.raises(flatclip.errors.NumberError):
        flatclip.TextBank.from_encoder(lambda contexts: np.zeros((1, 3, 8)), context)
    with pytest.raises(flatclip.errors.OptionError):
        flatclip.TextBank.from_encoder(lambda contexts: np.ones((1, 3, 8)), context, radius=-1.0)
    with pytest.raises(flatclip.errors.MethodError, match="text bank"):
        flatclip.adapt(arrays[0], arrays[1], 100.0, method="stss")
    with pytest.raises(flatclip.errors.MethodError) as caught:
        flatclip.adapt(arrays[0], arrays[1], 100.0, method="tpt")
    assert caught.value.code == "method.needs" and "flatclip.load" in (caught.value.hint or "")


def test_perturbations_have_the_length_of_the_radius() -> None:
    context = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    seen: list[np.ndarray] = []

    def encode(contexts: np.ndarray) -> np.ndarray:
        seen.extend(contexts)
        return np.ones((len(contexts), 3, 5))

    flatclip.TextBank.from_encoder(encode, context, perturbations=5, radius=0.25, batch_size=4)
    assert len(seen) == 6 and (seen[0] == context).all()
    assert np.allclose([np.linalg.norm(moved - context) for moved in seen[1:]], 0.25, atol=1e-5)


def test_sam_step_is_the_gradient_at_the_worst_point() -> None:
    target = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)

    def loss(parameters: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        off = parameters[0] - target
        return float((off**2).sum()), [2 * off]

    p = np.zeros((2, 2), np.float32)
    step = flatclip.sam_step(loss, [p], radius=0.5)
    g = loss([p])[1][0]
    eps = 0.5 * g / np.linalg.norm(g)
    assert np.allclose(step["epsilon"][0], eps, atol=1e-6)
    assert np.allclose(step["gradient"][0], loss([p + eps])[1][0], atol=1e-5)
    assert step["perturbed_loss"] > step["loss"]
    half = flatclip.sam_step(loss, [p], radius=0.5, weight=0.5, norm="per-token", perturbation="asam")
    assert half["gradient"][0].shape == (2, 2)
    with pytest.raises(ValueError, match="gradient 0 has shape"):
        flatclip.sam_step(lambda p: (0.0, [np.zeros(3)]), [p])
