"""scikit-learn's own estimators over a Classifier whose class list is in no particular order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flatclip

pytest.importorskip("sklearn")

from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.ensemble import StackingClassifier, VotingClassifier  # noqa: E402
from sklearn.frozen import FrozenEstimator  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.model_selection import cross_val_predict, cross_val_score  # noqa: E402

Labelled = tuple[list[np.ndarray], np.ndarray, list[str]]
pytestmark = pytest.mark.filterwarnings("ignore:y holds integers")


@pytest.fixture(scope="module")
def labelled() -> Labelled:
    """Six classes, eight images each, in the pocket dataset's order: car before bus."""
    data = flatclip.Dataset("pocket:photo::400", split="train")
    places = np.concatenate([np.flatnonzero(data.labels == label)[:8] for label in range(6)])
    classes = data.classes[:6]
    assert classes != sorted(classes)
    return [data[int(i)][0] for i in places], np.array(data.classes)[data.labels[places]], classes


@pytest.fixture(scope="module")
def made(labelled: Labelled) -> flatclip.Classifier:
    return flatclip.Classifier("pocket", labelled[2], method="zero-shot", tuner=None, progress=False)


@pytest.fixture(scope="module")
def alone(made: flatclip.Classifier, labelled: Labelled) -> float:
    return made.score(labelled[0], labelled[1])


def test_columns_are_sorted_as_classes_are(made: flatclip.Classifier, labelled: Labelled) -> None:
    images, _, classes = labelled
    assert made.classes is classes and made.classes_.tolist() == sorted(classes) == np.unique(classes).tolist()
    answers, columns = made.answer(images), made.predict_proba(images)
    for column, name in enumerate(made.classes_):
        assert (columns[:, column] == answers.probabilities[:, classes.index(name)]).all(), name
    assert (made.classes_[columns.argmax(1)] == made.predict(images)).all()
    assert answers[0].classes == classes, "answers keep the order of the user"


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_voting(made: flatclip.Classifier, labelled: Labelled, alone: float, voting: str) -> None:
    images, names, classes = labelled
    other = flatclip.Classifier("pocket", classes, method="zero", views=4, tuner=None, progress=False)
    vote = VotingClassifier([("one", made), ("other", other), ("again", made)], voting=voting).fit(images, names)
    assert vote.score(images, names) >= alone - 0.1 > 0.4, "label-encoded integers are those of the sorted names"
    assert set(vote.predict(images)) <= set(classes)


@pytest.mark.parametrize("ensemble", [True, False])
def test_calibration(made: flatclip.Classifier, labelled: Labelled, alone: float, ensemble: bool) -> None:
    images, names, _ = labelled
    calibrated = CalibratedClassifierCV(made, cv=2, ensemble=ensemble).fit(images, names)
    assert calibrated.score(images, names) >= alone - 0.15
    assert np.allclose(calibrated.predict_proba(images).sum(1), 1)


def test_calibration_of_a_classifier_that_was_never_fitted(made: flatclip.Classifier, labelled: Labelled, alone: float) -> None:
    images, names, _ = labelled
    calibrated = CalibratedClassifierCV(FrozenEstimator(made)).fit(images, names)
    assert calibrated.score(images, names) >= alone - 0.15


def test_stacking(made: flatclip.Classifier, labelled: Labelled, alone: float) -> None:
    images, names, classes = labelled
    stack = StackingClassifier([("clip", made)], LogisticRegression(max_iter=2000), cv=2).fit(images, names)
    assert stack.score(images, names) >= alone - 0.1 and set(stack.predict(images)) <= set(classes)


def test_cross_validated_probabilities_are_those_of_the_classifier(made: flatclip.Classifier, labelled: Labelled) -> None:
    images, names, _ = labelled
    crossed = cross_val_predict(made, images, names, cv=2, method="predict_proba")
    assert (np.unique(names)[crossed.argmax(1)] == made.predict(images)).all(), "columns in the order of the sorted labels"
    assert (crossed == made.predict_proba(images)).all()
    assert (cross_val_predict(made, images, names, cv=2) == made.predict(images)).all()


def test_log_loss(made: flatclip.Classifier, labelled: Labelled) -> None:
    images, names, _ = labelled
    expected = log_loss(names, made.predict_proba(images))
    answers = made.answer(images)
    places = [made.classes.index(name) for name in names]  # type: ignore[union-attr]
    by_hand = -np.log(answers.probabilities[np.arange(len(names)), places].astype(np.float64)).mean()
    assert expected == pytest.approx(by_hand, rel=1e-4)
    scores = cross_val_score(made, images, names, cv=2, scoring="neg_log_loss", error_score="raise")
    assert -scores.mean() == pytest.approx(expected, rel=1e-4)


def test_integers_mean_the_sorted_names_or_are_refused(made: flatclip.Classifier, labelled: Labelled, alone: float) -> None:
    from sklearn.base import clone

    images, names, classes = labelled
    encoded = np.searchsorted(sorted(classes), names)
    fresh = clone(made)
    with pytest.warns(UserWarning, match="LabelEncoder"):
        fresh.fit(images, encoded)
    assert fresh.classes_.tolist() == list(range(6)) and fresh.score(images, encoded) == alone
    assert (fresh.predict(images) == np.searchsorted(sorted(classes), made.predict(images))).all()
    assert (fresh.predict_proba(images) == made.predict_proba(images)).all()
    with pytest.raises(ValueError, match="two readings"):
        made.score(images, encoded)
    some = encoded < 4
    with pytest.raises(ValueError, match="two readings"):
        clone(made).fit([image for image, one in zip(images, some) if one], encoded[some])
    with pytest.raises(ValueError, match="from 0 to 5, found 6"):
        clone(made).fit(images[:2], [0, 6])
    in_order: Any = flatclip.Classifier("pocket", sorted(classes), method="zero-shot", tuner=None, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_order.fit(images, encoded).score(images, names) == alone == in_order.score(images, encoded)
        never_fitted = clone(in_order)
        assert never_fitted.score(images, encoded) == alone, "a sorted list has one reading"


def test_integers_and_names_learn_the_same_prompt(labelled: Labelled) -> None:
    images, names, classes = labelled
    how: Any = {"method": "zero-shot", "tuner": "coop", "tuner_options": {"train.epochs": 3, "train.lr": 0.5}, "progress": False}
    by_name = flatclip.Classifier("pocket", classes, **how).fit(images, names)
    by_integer = flatclip.Classifier("pocket", classes, **how).fit(images, np.searchsorted(sorted(classes), names))
    assert (by_name.prompt_.context == by_integer.prompt_.context).all()  # type: ignore[union-attr]
    assert (by_name.predict(images) == np.array(sorted(classes))[by_integer.predict(images)]).all()


@pytest.mark.parametrize("method", ["score", "fit"])
def test_unequal_lengths_are_an_error(made: flatclip.Classifier, labelled: Labelled, method: str) -> None:
    from sklearn.base import clone

    images, names, _ = labelled
    ask = getattr(clone(made), method)
    for labels in [names[:1], names[:-1], np.append(names, names[0])]:
        with pytest.raises(ValueError, match=f"{method}: 48 images and {len(labels)} labels"):
            ask(images, labels)
    with pytest.raises(ValueError, match="1 images and 2 labels"):
        ask(images[0], names[:2])
    with pytest.raises(ValueError, match="48 images and 1 labels"):
        ask(np.stack(images), names[:1])
    with pytest.raises(ValueError, match="48 images and 3 labels"):
        ask((image for image in images), names[:3])
