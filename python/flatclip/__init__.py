"""Prompt tuning and test-time adaptation for CLIP-like models, led by flatness.

>>> import flatclip
>>> model = flatclip.load("pocket")  # or "ViT-B-16", pretrained="openai"; a folder; a file
>>> clf = flatclip.Classifier(model, ["cat", "fish", "lamp"], method="stss", views=16)
>>> import numpy as np
>>> image = np.full((64, 64, 3), 200, np.uint8)  # or a path, bytes, a PIL image, a tensor; one or many
>>> clf.predict_proba(image).shape
(1, 3)
"""

from __future__ import annotations

from . import errors
from ._classifier import Classifier
from ._device import from_torch
from ._encoder import Encoder
from ._explanation import Explanation
from ._features import FeatureClassifier, TextBank, adapt
from ._imports import import_features
from ._methods import Option, register_adapter, unregister_adapter
from ._models import list_methods, list_models, load, method_info
from ._native import (
    Answer,
    Answers,
    Dataset,
    Features,
    Model,
    Prompt,
    TextTower,
    __version__,
    get_num_threads,
    set_num_threads,
)
from ._reproduce import Reproduced, reproduce
from ._runs import Landscape, Report, Runs, Table, evaluate, landscape, merge, report, sam_step, sweep, tune
from .errors import FlatclipError

__all__ = [
    "Answer",
    "Answers",
    "Classifier",
    "Dataset",
    "Encoder",
    "Explanation",
    "FeatureClassifier",
    "Features",
    "FlatclipError",
    "Landscape",
    "Model",
    "Option",
    "Prompt",
    "Report",
    "Reproduced",
    "Runs",
    "Table",
    "TextBank",
    "TextTower",
    "__version__",
    "adapt",
    "errors",
    "evaluate",
    "from_torch",
    "get_num_threads",
    "import_features",
    "landscape",
    "list_methods",
    "list_models",
    "load",
    "merge",
    "method_info",
    "register_adapter",
    "report",
    "reproduce",
    "sam_step",
    "set_num_threads",
    "sweep",
    "tune",
    "unregister_adapter",
]
