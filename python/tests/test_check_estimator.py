"""scikit-learn's own `check_estimator`.

Its data are rows of numbers, which are no images, and its labels integers, which are no class names. So the checks run on a
Classifier that differs in these two points only: a row is drawn as an image, and a label gets a word for its name.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flatclip
from flatclip._labels import Labels

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.exceptions import SkipTestWarning  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks  # noqa: E402

WORDS = ["apple", "bird", "car", "dog", "egg", "fish", "gate", "house", "iron", "jar", "key", "lamp"]


def _drawn(X: Any) -> np.ndarray:
    """Every row as an image of its own, its numbers in stripes; images as they are."""
    if getattr(X, "dtype", None) == np.uint8 and np.ndim(X) == 4:
        return np.asarray(X)
    rows = np.atleast_2d(np.asarray(X, np.float64))
    squashed = np.uint8(127.5 * (1 + np.tanh(np.nan_to_num(rows))))
    stripes = np.repeat(squashed[:, :, None], 8, axis=2)
    return np.ascontiguousarray(np.repeat(np.repeat(stripes, 4, axis=1)[..., None], 3, axis=3))


class Rows(flatclip.Classifier):
    """A Classifier of rows of numbers."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.classifier_tags.poor_score = True  # nothing is learned, and the names are arbitrary
        return tags

    def fit(self, X: Any, y: Any) -> Rows:
        super().fit(_drawn(X), y)
        return self

    def answer(self, X: Any, **keywords: Any) -> flatclip.Answers:
        return super().answer(_drawn(X), **keywords)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return super().score(_drawn(X), y, sample_weight)

    def _learned_labels(self, labels: list[Any]) -> Labels:
        if isinstance(labels[0], (int, np.integer)):
            known = sorted({int(label) for label in labels})
            return Labels(WORDS[: len(known)], known)
        return super()._learned_labels(labels)


# Also in docs/guide/python.md.
NO_IMAGE = "a sparse matrix is no image: it is refused, but by a message about images, not about sparse input"
EXPECTED_FAILURES = {
    "check_estimator_sparse_tag": NO_IMAGE,
    "check_estimator_sparse_array": NO_IMAGE,
    "check_estimator_sparse_matrix": NO_IMAGE,
}


@parametrize_with_checks(
    [Rows(method="zero-shot", tuner=None, progress=False)], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_classifier_itself_says_that_its_input_is_no_table() -> None:
    with pytest.warns(SkipTestWarning, match="Can't test estimator Classifier"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("always", SkipTestWarning)
        check_estimator(flatclip.Classifier(tuner=None))
