"""Imports features of other programs into the feature cache, for all methods that need no tower, and for reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _checks, _native
from ._native import Dataset, Features
from ._progress import Watcher, watcher


def import_features(
    source: Any,
    *,
    name: str | None = None,
    data: str | Dataset | None = None,
    ids: Sequence[str] | None = None,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    text_features: Any = None,
    text_bank: Any = None,
    logit_scale: float | None = None,
    model: str | None = None,
    norms: Any = None,
    cache: str | os.PathLike[str] | None = None,
    replace: bool = False,
    progress: bool | Watcher | None = None,
) -> Features:
    """Imports features of any model, from a file (npz, safetensors) or an array ``[N, D]`` or ``[N, V, D]``.

    An array of float32 or float16, a memory map among them, is read one sample at a time. ``data`` gives labels, classes and
    the order; ``ids`` must then be those of its samples (``Dataset.ids``). ``text_features`` are ``[K, D]``, ``text_bank``
    ``[R + 1, K, D]``; ``logit_scale`` is the factor on cosine similarities. Arguments may be omitted if the file has them, and
    must not contradict it. ``norms`` are the original norms of features that have been scaled to unit norm.

    >>> import flatclip, numpy as np, tempfile
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     features = flatclip.import_features(
    ...         rng.normal(size=(6, 4, 8)).astype("float16"), name="mine", labels=[0, 1, 2] * 2, classes=["cat", "dog", "fish"],
    ...         text_features=rng.normal(size=(3, 8)).astype("float32"), logit_scale=100.0, cache=folder, progress=False,
    ...     )
    ...     runs = flatclip.evaluate(features, method=["zero", "tda"], out=folder + "/runs", progress=False)
    >>> features, len(runs)
    (<flatclip.Features mine: 6 samples, 4 views, width 8>, 2)
    """
    file = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    if name is None:
        if file is None:
            raise TypeError("name: expected a name for features that are given as an array")
        name = os.path.splitext(os.path.basename(file))[0]
    if norms is not None and file is not None:
        raise TypeError("norms: expected with an array; a file has norms of its own")
    beside = {
        "ids": None if ids is None else _checks.names(ids, "ids"),
        "labels": None if labels is None else [int(label) for label in labels],
        "classes": None if classes is None else _checks.names(classes, "classes"),
        "text_features": text_features, "text_bank": text_bank, "logit_scale": logit_scale, "model": model, "norms": norms,
    }  # fmt: skip
    place = None if cache is None else os.fspath(cache)
    dataset = Dataset(data) if isinstance(data, str) else data
    return _native.import_features(
        source if file is None else file, name, beside, data=dataset, cache=place, replace=replace, progress=watcher(progress)
    )
