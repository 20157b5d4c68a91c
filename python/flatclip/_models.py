"""Models and methods by name."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from . import _checks, _native
from ._native import Model
from ._progress import Watcher, watcher


def load(
    name: str | os.PathLike[str] = "pocket",
    pretrained: str | None = None,
    *,
    model_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    precision: str = "auto",
    activation: str | None = None,
    device: str | None = None,
    progress: bool | Watcher | None = None,
) -> Model:
    """Loads a model.

    ``name`` is an embedded model (``pocket``, ``pocket-vit``), a checkpoint file, a model folder (open_clip's, Hugging
    Face's, a ``huggingface_hub`` snapshot; ``local-dir:`` before it is accepted), a known name with its training set
    (``load("ViT-B-16", pretrained="openai")`` or ``load("ViT-B-16/openai")``), or ``random:ViT-B-16``.
    What is not on disk is fetched; without a network that fails at once. ``device`` may be ``"cpu"`` only, for now.

    >>> import flatclip
    >>> flatclip.load("pocket").encode_text(["a photo of a cat."]).shape[0]
    1
    """
    _checks.device(device)
    text = os.fspath(name)
    if text.startswith("local-dir:"):
        text = text[len("local-dir:") :]
    if pretrained is not None:
        text = f"{text}/{pretrained}"
    return _native.load(
        text,
        model_dir=None if model_dir is None else os.fspath(model_dir),
        offline=offline,
        precision=precision,
        activation=activation,
        progress=watcher(progress),
    )


def list_models(pattern: str = "*") -> list[str]:
    """Known models, with the wildcards of open_clip and timm.

    >>> import flatclip
    >>> flatclip.list_models("ViT-L-14-336*")
    ['ViT-L-14-336/openai']
    """
    return [name for name in _native.list_models() if fnmatch.fnmatchcase(name, pattern)]


def list_methods(role: str | None = None) -> list[str]:
    """Names of adapters and tuners; ``role`` is ``"adapter"`` or ``"tuner"``.

    >>> import flatclip
    >>> "stss" in flatclip.list_methods("adapter"), "sapt" in flatclip.list_methods("tuner")
    (True, True)
    """
    return _native.list_methods(role)


def method_info(name: str) -> dict[str, Any]:
    """What a method does, what it needs, and its options with default, range and source.

    >>> import flatclip
    >>> flatclip.method_info("stss")["defaults"]["radius"]
    0.5
    """
    return _native.method_info(name)
