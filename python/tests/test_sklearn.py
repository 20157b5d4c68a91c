"""scikit-learn's habits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import flatclip

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402


@pytest.fixture(scope="module")
def labelled() -> tuple[list[np.ndarray], np.ndarray, list[str]]:
    data = flatclip.Dataset("pocket:photo::400", split="train")
    wanted = data.labels < 4
    places = [i for i in np.flatnonzero(wanted)][:24]
    return [data[int(i)][0] for i in places], np.array(data.classes)[data.labels[places]], data.classes[:4]


def test_clone_has_the_same_arguments_and_nothing_learned(model: flatclip.Model) -> None:
    clf = flatclip.Classifier(model, ["a", "b"], method="stss", views=8, radius=0.3)
    twin = clone(clf)
    assert twin is not clf and twin.get_params() == clf.get_params() and twin.get_params()["radius"] == 0.3
    assert twin.set_params(method="zero", fraction=0.5).method == "zero"
    assert clf.method == "stss" and is_classifier(clf)


def test_a_grid_over_methods_and_options(model: flatclip.Model, labelled: tuple) -> None:
    images, names, classes = labelled
    clf = flatclip.Classifier(model, classes, tuner=None, views=4, progress=False)
    grid = GridSearchCV(clf, {"method": ["zero-shot", "zero"], "random_state": [0, 1]}, cv=2, error_score="raise")
    grid.fit(images, names)
    assert set(grid.best_params_) == {"method", "random_state"} and 0 <= grid.best_score_ <= 1
    scores = cross_val_score(clf, images, names, cv=2, error_score="raise")
    assert len(scores) == 2 and np.isfinite(scores).all()


def test_fit_learns_a_prompt_that_survives_pickling(model: flatclip.Model, labelled: tuple) -> None:
    images, names, classes = labelled
    clf = flatclip.Classifier(
        model, classes, method="stss", views=4, tuner="coop", tuner_options={"train.epochs": 2}, progress=False
    )
    assert clf.fit(images, names) is clf
    assert clf.prompt_.kind == "learned" and clf.summary_["images"] == len(images)
    assert clf.classes_.tolist() == sorted(classes) and clf.class_names_ == classes
    copy = pickle.loads(pickle.dumps(clf))
    assert (copy.predict_proba(images[:3]) == clf.predict_proba(images[:3])).all()
    assert copy.prompt_ == clf.prompt_ and (copy.prompt_.context == clf.prompt_.context).all()
    assert 0 <= clf.score(images, names) <= 1


def test_labels_may_be_integers(model: flatclip.Model, labelled: tuple) -> None:
    images, names, classes = labelled
    indices = np.searchsorted(sorted(classes), names)  # as LabelEncoder numbers them
    clf = flatclip.Classifier(model, sorted(classes), method="zero-shot", tuner=None).fit(images, indices)
    assert clf.predict(images[:2]).dtype.kind == "i"
    assert clf.score(images, indices) == clf.score(images, names)
    with pytest.raises(ValueError, match="class names"):
        flatclip.Classifier(model, tuner=None).fit(images, indices)
    with pytest.raises(ValueError, match="expected one of"):
        clf.score(images[:1], ["no such class"])


def test_it_stands_at_the_end_of_a_pipeline(model: flatclip.Model, labelled: tuple) -> None:
    images, names, classes = labelled
    mirrored = FunctionTransformer(lambda X: [image[:, ::-1] for image in X])
    pipe = Pipeline([("mirror", mirrored), ("clip", flatclip.Classifier(model, classes, method="zero-shot", tuner=None))])
    pipe.fit(images, names)
    pipe.set_params(clip__method="zero", clip__views=4)
    assert len(pipe.predict(images[:3])) == 3
    assert clone(pipe).get_params()["clip__views"] == 4


def test_wrong_options_are_said_when_asked(model: flatclip.Model, images: list[np.ndarray]) -> None:
    with pytest.raises(flatclip.errors.OptionError, match="no_such_option"):
        flatclip.Classifier(model, ["a", "b"], method="stss", no_such_option=1)
    with pytest.raises(flatclip.errors.OptionError, match="radius"):
        flatclip.Classifier(model, ["a", "b"], method="stss", radius=-1.0).predict(images[0])
