"""Bad arrays: a TypeError or ValueError that says what was expected, never a panic, never a wrong answer (40 cases and more)."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

GOOD = np.arange(16 * 12 * 3, dtype=np.uint8).reshape(16, 12, 3)


class Broken:
    shape = (4, 4, 3)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ValueError("broken")


def closed() -> io.BytesIO:
    file = io.BytesIO(b"x")
    file.close()
    return file


IMAGES: dict[str, Any] = {
    "float pixels": GOOD.astype(np.float32),
    "float64 pixels": GOOD / 255,
    "half pixels": GOOD.astype(np.float16),
    "NaN image": np.full((8, 8, 3), np.nan),
    "infinite image": np.full((8, 8, 3), np.inf, np.float32),
    "int64 pixels": GOOD.astype(np.int64),
    "int8 pixels": GOOD.astype(np.int8),
    "uint16 pixels": GOOD.astype(np.uint16),
    "bool pixels": GOOD > 3,
    "complex pixels": GOOD.astype(complex),
    "dates": np.zeros((4, 4, 3), "datetime64[s]"),
    "records": np.zeros((4, 4), [("r", "u1"), ("g", "u1")]),
    "object array": np.array([object(), None], object),
    "no axes": np.uint8(3),
    "zero axes array": np.array(3, np.uint8),
    "one axis": np.zeros(9, np.uint8),
    "five axes": np.zeros((1, 1, 4, 4, 3), np.uint8),
    "two channels": np.zeros((4, 4, 2), np.uint8),
    "four channels": np.zeros((4, 4, 4), np.uint8),
    "batch of four channels": np.zeros((2, 5, 5, 4), np.uint8),
    "no rows": np.zeros((0, 4, 3), np.uint8),
    "no columns": np.zeros((4, 0, 3), np.uint8),
    "no images": np.zeros((0, 4, 4, 3), np.uint8),
    "empty list": [],
    "huge": np.broadcast_to(np.uint8(0), (200_000, 200_000, 3)),
    "huge side by side": np.broadcast_to(np.uint8(0), (3, 100_000, 100_000)),
    "list of mixed": [GOOD, 3],
    "list of lists": [[1, 2], [3]],
    "list with None": [GOOD, None],
    "batch inside a list": [np.zeros((2, 4, 4, 3), np.uint8)],
    "None": None,
    "a number": 3.5,
    "a dictionary of numbers": {1: 2},
    "a closed file": closed(),
    "a text file": io.StringIO("x"),
    "bytes that are no image": b"not an image",
    "no bytes": b"",
    "a path that is not there": "/no/such/image.png",
    "a path with a zero byte": "a\0b.png",
    "a broken array": Broken(),
    "a generator of numbers": (i for i in range(3)),
    "a set of numbers": {1, 2},
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_bad_image_is_refused(model: flatclip.Model, name: str) -> None:
    clf = flatclip.Classifier(model, ["cat", "dog"], method="zero", views=2)
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        clf.predict(IMAGES[name])
    assert str(caught.value) and "panic" not in str(caught.value).lower()
    with pytest.raises((TypeError, ValueError, OSError)):
        model.encode_image(IMAGES[name] if name != "a generator of numbers" else iter([1]))


TEXT = np.eye(3, 8, dtype=np.float32)
VIEWS = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)

FEATURES: dict[str, tuple[Any, Any, Any]] = {
    "NaN in a view": (np.where(np.arange(8) == 3, np.nan, VIEWS), TEXT, 100.0),
    "infinity in a view": (np.where(np.arange(8) == 3, np.inf, VIEWS), TEXT, 100.0),
    "beyond float32": (VIEWS.astype(np.float64) * 1e300, TEXT, 100.0),
    "a view of zeros": (np.zeros((4, 8), np.float32), TEXT, 100.0),
    "a class of zeros": (VIEWS, np.zeros((3, 8), np.float32), 100.0),
    "NaN in the text": (VIEWS, np.full((3, 8), np.nan), 100.0),
    "other widths": (VIEWS[:, :5], TEXT, 100.0),
    "one axis of views": (VIEWS[0], TEXT, 100.0),
    "four axes of views": (VIEWS[None, None], TEXT, 100.0),
    "no views": (VIEWS[:0], TEXT, 100.0),
    "no images": (np.zeros((0, 4, 8), np.float32), TEXT, 100.0),
    "no classes": (VIEWS, TEXT[:0], 100.0),
    "one axis of text": (VIEWS, TEXT[0], 100.0),
    "complex views": (VIEWS.astype(complex), TEXT, 100.0),
    "text views": (np.array([["a", "b"]]), TEXT, 100.0),
    "object views": (np.array([[None] * 8], object), TEXT, 100.0),
    "ragged views": ([[1.0, 2.0], [3.0]], TEXT, 100.0),
    "bool views": (VIEWS > 0, TEXT, 100.0),
    "NaN scale": (VIEWS, TEXT, float("nan")),
    "negative scale": (VIEWS, TEXT, -1.0),
    "no scale": (VIEWS, TEXT, None),
}


@pytest.mark.parametrize("name", FEATURES)
def test_bad_features_are_refused(name: str) -> None:
    views, text, scale = FEATURES[name]
    with np.errstate(all="ignore"), pytest.raises((TypeError, ValueError)) as caught:
        flatclip.adapt(views, text, scale, method="zero")
    assert "panic" not in str(caught.value).lower()


def test_there_are_enough_bad_ones() -> None:
    assert len(IMAGES) >= 40 and len(FEATURES) >= 20


def variants(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values with every memory layout that numpy has."""
    fixed = array.copy()
    fixed.flags.writeable = False
    swapped = array.transpose(1, 0, 2)
    mapped = tempfile.NamedTemporaryFile(suffix=".npy")
    np.save(mapped.name, array)
    return {
        "fortran order": np.asfortranarray(array),
        "negative strides": array[::-1].copy()[::-1],
        "negative strides twice": np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
        "every second row": np.repeat(array, 2, axis=0)[::2],
        "transposed": swapped.copy().transpose(1, 0, 2),
        "read-only": fixed,
        "unaligned": np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape),
        "other byte order": array.astype(array.dtype.newbyteorder()),
        "a subclass": np.ma.asarray(array),
        "a memory map": np.load(mapped.name, mmap_mode="r"),
    }


def test_memory_layout_does_not_matter_for_images(model: flatclip.Model) -> None:
    expected = model.encode_image(GOOD)
    for name, array in variants(GOOD).items():
        assert (model.encode_image(array) == expected).all(), name
    assert (model.encode_image(GOOD.transpose(2, 0, 1)) == expected).all(), "channels first"
    assert (model.encode_image(GOOD[None])[0] == expected[0]).all(), "a batch of one"
    grey = GOOD[:, :, 0]
    assert (model.encode_image(grey) == model.encode_image(np.stack([grey] * 3, 2))).all()


def test_memory_layout_does_not_matter_for_features() -> None:
    rng = np.random.default_rng(1)
    views, text = rng.normal(size=(5, 6, 8)).astype(np.float32), rng.normal(size=(3, 8)).astype(np.float32)
    expected = flatclip.adapt(views, text, 100.0, method="mta").probabilities
    for name, array in variants(views).items():
        assert (flatclip.adapt(array, text, 100.0, method="mta").probabilities == expected).all(), name
    assert (flatclip.adapt(views.astype(np.float64), text, 100.0, method="mta").probabilities == expected).all()
    assert (flatclip.adapt(views.tolist(), text.tolist(), 100, method="mta").probabilities == expected).all()


def test_an_array_is_neither_changed_nor_kept(model: flatclip.Model) -> None:
    views = np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32)
    before, count = views.copy(), sys.getrefcount(views)
    flatclip.adapt(views, TEXT, 100.0)
    model.encode_image(GOOD)
    assert (views == before).all() and sys.getrefcount(views) == count
    views[:] = 0  # the borrow has ended


def test_every_way_to_give_a_image_gives_the_same_answer(model: flatclip.Model, files: list[str]) -> None:
    clf = flatclip.Classifier(model, ["cat", "fish", "lamp"], method="stss", views=8)
    file = files[0]
    data = Path(file).read_bytes()
    array = flatclip.Dataset(f"csv:{_manifest(file)}")[0][0]
    with open(file, "rb") as opened:
        ways = [file, Path(file), data, bytearray(data), memoryview(data), opened, array, [file], array[None]]
        answers = [clf.predict_proba(way) for way in ways]
    assert all((answer == answers[0]).all() for answer in answers)


def _manifest(file: str) -> str:
    handle = tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False)
    handle.write(f"path,label\n{file},cat\n")
    handle.close()
    return handle.name
