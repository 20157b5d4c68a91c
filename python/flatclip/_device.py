"""Models on a device: torch computes the towers, with weights read by flatclip."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _native, errors
from ._native import Model
from ._progress import Watcher, watcher
from ._towers import FULL, HALF, Failed, need_torch


def load_on(
    name: str, device: Any, dtype: Any = None, batch_views: int | None = None, progress: bool | Watcher | None = None, **how: Any
) -> Model:
    """Loads a model on a device and checks it against flatclip's f32 kernels."""
    need_torch()
    import torch

    from .torch import _towers as torch_towers

    place, kind = torch_towers.device_of(device), torch_towers.dtype_of(dtype or "float32")
    weights = _native.open_weights(name, progress=watcher(progress), **how)
    tensors = {found: torch.from_numpy(weights.tensor(found)).to(place) for found in weights.names()}
    rebuild = _Rebuild(name, {**how, "device": str(place), "dtype": str(kind)})
    model, towers = _made(weights, tensors, place, kind, batch_views, rebuild, progress)
    # Another process must use the same settings: shards of a run must have calls of the same size, and the last bits of torch's
    # results on the CPU depend on its number of threads.
    rebuild.how.update(batch_views=towers.batch_views, threads=None if towers.fixed else torch.get_num_threads())
    return model


def from_torch(
    model: Any,
    *,
    tokenizer: Any = None,
    preprocess: Any = None,
    dtype: Any = None,
    name: str | None = None,
    batch_views: int | None = None,
    progress: bool | Watcher | None = None,
) -> Model:
    """A model from an existing torch CLIP module: open_clip's, transformers' ``CLIPModel`` or ``SiglipModel``.

    Weights are not copied: flatclip's torch towers use the same tensors. The towers are compared with the module's own
    features of a few images and texts, and with flatclip's f32 kernels. A module that computes something else (an adapter in a
    block, another architecture) becomes an `Encoder` of its own ``encode_image`` and ``encode_text``; methods that need
    gradients are then refused. ``tokenizer`` and ``preprocess`` are those that the library returns with the model:
    ``tokenizer`` is used with the module's own functions, and by SigLIP; ``preprocess`` provides mean and standard deviation.
    """
    need_torch()
    import torch

    from .torch import _foreign
    from .torch import _towers as torch_towers

    kind = torch_towers.dtype_of(dtype or "float32")
    found = _foreign.describe(model, preprocess)
    title = name or f"torch:{type(model).__name__}"
    reason = found.reason
    if found.config and tokenizer is None:
        reason = "its texts need its tokenizer: give tokenizer="
    if not reason:
        try:
            with tempfile.TemporaryDirectory(prefix="flatclip-", ignore_cleanup_errors=True) as folder:
                weights = _opened(found, Path(folder), tokenizer, preprocess)
                made, towers = _made(
                    weights, found.tensors, found.device, kind, batch_views, _No(title), progress, title, found.full
                )
            lowest = _foreign.lowest_cosine(model, found, towers)
            if lowest >= (FULL if kind == torch.float32 and found.full else HALF):
                return made
            reason = f"its features differ from those of its weights (lowest cosine {lowest:.4f})"
        except (errors.ModelError, KeyError, ValueError) as error:
            reason = str(error)
        except errors.DeviceError as error:
            reason = error.message
    return _foreign.own_functions(model, found, tokenizer, title, reason)


def _opened(found: Any, folder: Path, tokenizer: Any, preprocess: Any) -> Any:
    """Opens the weights with flatclip's reader, which provides architecture, tokenizer, hash and kernels."""
    path = folder / "model.safetensors"
    if found.config is None:
        metadata = {"made_by": "flatclip", "mean": json.dumps(found.mean), "std": json.dumps(found.std)}
        _save(path, found.state, {**metadata, **{name: str(count) for name, count in found.heads.items()}})
        return _native.open_weights(os.fspath(path), offline=True, activation=found.activation)
    _save(path, found.state, {})
    (folder / "config.json").write_text(found.config)
    for part in (tokenizer, getattr(preprocess, "image_processor", preprocess)):
        if hasattr(part, "save_pretrained"):
            part.save_pretrained(folder)
    return _native.open_weights(os.fspath(folder), offline=True)


def _save(path: Path, state: Mapping[str, Any], metadata: dict[str, str]) -> None:
    """A safetensors file of float32 tensors, one at a time."""
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for name, tensor in state.items():
        end = at + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in state.values():
            file.write(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).tobytes())


def _made(
    weights: Any, tensors: Mapping[str, Any], device: Any, dtype: Any, batch_views: int | None, rebuild: Any,
    progress: bool | Watcher | None, name: str | None = None, full: bool = True,
) -> tuple[Model, Any]:  # fmt: skip
    import torch

    from .torch import _towers as torch_towers

    try:
        towers = torch_towers.Towers(tensors, weights.config, device=device, dtype=dtype, batch_views=batch_views, rebuild=rebuild)
    except (KeyError, ValueError) as error:
        reason = f"torch towers: {error}; this architecture runs on flatclip's own kernels only: leave device out"
        raise errors.make("device.failed", reason) from error
    full = full and dtype == torch.float32
    # The last bits of features depend on these settings: a run can only be resumed with the same ones.
    last = f"{towers.batch_views} views a call" if towers.fixed else f"{torch.get_num_threads()} threads"
    about = {
        "name": _device_name(torch, device), "dtype": str(dtype).removeprefix("torch."),
        "versions": f"torch {torch.__version__}, {last}", "bound": FULL if full else HALF,
    }  # fmt: skip
    model = _native.model_on(weights, towers, about, name=name, progress=watcher(progress))
    watch = watcher(progress)
    if watch is not None and model.device is not None:
        lowest = model.device["lowest_cosine"]
        watch.note(f"{about['name']}, {about['dtype']}: lowest cosine with our f32 kernels {lowest:.6f}")
    return model, towers


def _device_name(torch: Any, device: Any) -> str:
    if device.type == "cuda":
        return f"torch {device.type} ({torch.cuda.get_device_name(device)})"
    return f"torch {device.type}"


class _Rebuild:
    """How another process makes the model: a function and its arguments, for pickle."""

    def __init__(self, name: str, how: dict[str, Any]) -> None:
        self.name, self.how = name, how

    def __call__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        return _again, (self.name, self.how)


def _again(name: str, how: dict[str, Any]) -> Model:
    import torch

    threads, how = how["threads"], {key: value for key, value in how.items() if key != "threads"}
    if threads is not None:
        torch.set_num_threads(threads)
    return load_on(name, **how)


class _No:
    """The error for pickling a model that exists only in this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> Any:
        raise TypeError(f"{self.name} holds objects of this process; make it in the other process, or load it by name")


__all__ = ["Failed", "from_torch", "load_on"]
