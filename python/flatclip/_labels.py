"""Converts between labels in scikit-learn's order and the class list in the user's order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Labels:
    """The mapping between labels and classes.

    ``names`` is the class list in the order of the user, which is that of the library's answers. ``classes`` are the labels
    sorted, the order of scikit-learn: the sorted names, or integers where `Classifier.fit` was given integers; integer j
    is the j-th of the sorted names, as scikit-learn's ``LabelEncoder`` numbers them.
    """

    def __init__(self, names: Sequence[str], integers: Sequence[int] | None = None) -> None:
        self.names = list(names)
        sorted_names = np.array(self.names)
        self.order = np.argsort(sorted_names, kind="stable")
        """Position in ``names``, by column."""
        self.column = np.argsort(self.order, kind="stable")
        """Column, by position in ``names``."""
        self.has_integers = integers is not None
        self.classes: NDArray[Any] = sorted_names[self.order] if integers is None else np.array(integers)

    def of(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Labels of answers that are given by their position in ``names``."""
        return self.classes[self.column[positions]]

    def positions(self, labels: list[Any]) -> NDArray[np.int64]:
        """Positions in ``names`` of labels: names, or integers if they are unambiguous."""
        by_name = {name: place for place, name in reversed(list(enumerate(self.names)))}
        by_integer: dict[int, int] = {}
        if any(map(is_integer, labels)):
            by_integer = self._by_integer()
        found = []
        for label in labels:
            place = by_integer.get(int(label)) if is_integer(label) else by_name.get(label if isinstance(label, str) else "")
            if place is None:
                shown = ", ".join(map(repr, self.names[:5])) + (", ..." if len(self.names) > 5 else "")
                raise ValueError(f"y: expected one of {shown} or an integer below {len(self.names)}, found {label!r}")
            found.append(place)
        return np.array(found, np.int64)

    def _by_integer(self) -> dict[int, int]:
        if self.has_integers:
            return dict(zip(self.classes.tolist(), self.order.tolist()))
        if not is_sorted(self.names):
            raise ValueError(
                "y: integers have two readings, because classes is not sorted: positions in classes (0 is "
                f"{self.names[0]!r}) or in the sorted classes_ (0 is {str(self.classes[0])!r}); give names: "
                "numpy.array(classes)[y] or classes_[y]"
            )
        return dict(enumerate(range(len(self.names))))


def listed(y: Any) -> list[Any]:
    """Labels as a list, whatever holds them."""
    if isinstance(y, (str, bytes)) or y is None:
        raise TypeError(f"y: expected one label for each image, found {y!r}")
    if hasattr(y, "detach") and hasattr(y, "cpu"):
        y = y.detach().cpu().numpy()
    array = np.asarray(y) if hasattr(y, "__array__") else None
    if array is not None and array.ndim != 1:
        raise ValueError(f"y: expected one label for each image, found an array of shape {array.shape}")
    return list(y) if array is None else list(array)


def is_integer(label: Any) -> bool:
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool)


def is_sorted(names: Sequence[str]) -> bool:
    return list(names) == sorted(names)


def learned(labels: list[Any], names: Sequence[str] | None) -> Labels:
    """The labels of training images: names, or integers as ``LabelEncoder`` numbers the sorted names.

    Integers that could follow another numbering are refused; with an unsorted class list they cause a warning, because they
    might be meant as positions in it.
    """
    if not all(map(is_integer, labels)):
        for label in labels:
            if not isinstance(label, str):
                raise ValueError(
                    f"Unknown label type: y: expected class names, or integers for all of them, found {label!r} ({type(label).__name__})"
                )
        return Labels(sorted(set(map(str, labels))) if names is None else names)
    if names is None:
        raise ValueError("fit: integer labels need the class names: Classifier(classes=[...])")
    found = sorted({int(label) for label in labels})
    if found[0] < 0 or found[-1] >= len(names):
        wrong = found[0] if found[0] < 0 else found[-1]
        raise ValueError(f"y: expected an integer from 0 to {len(names) - 1}, found {wrong}")
    if found == list(range(len(found))) and len(found) < len(names):
        raise ValueError(
            f"y: the integers 0 to {found[-1]} for {len(names)} classes have two readings: some of the classes, numbered in the sorted "
            "list of all, or numbered without the others, as LabelEncoder does; give names, or only the classes that occur"
        )
    result = Labels(names, range(len(names)))
    if not is_sorted(names):
        warnings.warn(
            "y holds integers and classes is not sorted: they are read as scikit-learn's LabelEncoder numbers the sorted names (0 is "
            f"{names[result.order[0]]!r}), not as positions in classes (0 is {names[0]!r}); give names to be sure",
            stacklevel=3,
        )
    return result


def number_of_images(X: Any) -> int | None:
    """The number of images, if it can be determined without reading them."""
    if isinstance(X, (str, bytes, bytearray, memoryview, os.PathLike)) or hasattr(X, "read") or hasattr(X, "getbands"):
        return 1
    kind = getattr(getattr(X, "dtype", None), "kind", "u")
    if hasattr(X, "shape") and kind not in "OUST":
        return int(X.shape[0]) if len(X.shape) == 4 else 1
    return len(X) if hasattr(X, "__len__") else None


def paired(X: Any, y: Any, what: str) -> tuple[Any, list[Any]]:
    """Images and the same number of labels, each as a sequence that can be iterated twice."""
    labels, images = listed(y), X if number_of_images(X) is not None else list(X)
    count = number_of_images(images)
    if count != len(labels):
        raise ValueError(f"{what}: {count} images and {len(labels)} labels: expected as many of both")
    return images, labels
