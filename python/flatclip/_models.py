"""Models and methods by name."""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from . import _native, errors
from ._device import load_on
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
    device: Any = None,
    dtype: Any = None,
    batch_views: int | None = None,
    progress: bool | Watcher | None = None,
) -> Model:
    """Loads a model.

    ``name`` is an embedded model (``pocket``, ``pocket-vit``), a checkpoint file, a model folder (open_clip's, Hugging
    Face's, a ``huggingface_hub`` snapshot; ``local-dir:`` before it is accepted), a known name with its training set
    (``load("ViT-B-16", pretrained="openai")`` or ``load("ViT-B-16/openai")``), or ``random:ViT-B-16``.
    Models that are not on disk are downloaded; without a network this fails at once.

    Without ``device``, flatclip's own kernels run on the CPU. With one (``"cuda"``, ``"mps"``, ``"xpu"``, ``"cpu"``), torch
    computes the towers there in ``dtype`` (``"float32"``, ``"bfloat16"``, ``"float16"``), after a check against flatclip's
    kernels; ``batch_views`` is the number of views per call (by default found by a short trial; one image at a time on the
    CPU). Requires ``pip install flatclip[torch]``.

    >>> import flatclip
    >>> flatclip.load("pocket").encode_text(["a photo of a cat."]).shape[0]
    1
    """
    text = os.fspath(name)
    if text.startswith("local-dir:"):
        text = text[len("local-dir:") :]
    if pretrained is not None:
        text = f"{text}/{pretrained}"
    folder = None if model_dir is None else os.fspath(model_dir)
    if device is not None:
        if precision != "auto":
            raise errors.make("option.invalid", "precision: expected with our own kernels only; a device takes dtype=")
        return load_on(text, device, dtype, batch_views, progress, model_dir=folder, offline=offline, activation=activation)
    if dtype is not None or batch_views is not None:
        raise errors.make("option.invalid", "dtype, batch_views: expected with device= only; our own kernels take precision=")
    return _native.load(
        text, model_dir=folder, offline=offline, precision=precision, activation=activation, progress=watcher(progress)
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
