"""Reproduces items of the paper: plan, steps and tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from . import _checks, _native
from ._models import load
from ._native import Model
from ._progress import Watcher, watcher

Path = str | os.PathLike[str]


class Reproduced(dict[str, Any]):
    """The result of `reproduce`: ``steps``, ``skipped``, ``done``, ``open``, ``left_out``, ``results``, ``text``, ``page``."""

    def __str__(self) -> str:
        return str(self["text"])

    def __repr__(self) -> str:
        return f"<flatclip.Reproduced: {self['steps']} steps, {len(self['open'])} open>"


def reproduce(
    item: str | None = None,
    model: Model | Path | None = None,
    *,
    out: Path,
    recipe: Path | None = None,
    root: Path | None = None,
    paths: Mapping[str, Path] | None = None,
    compat: Sequence[str] = (),
    limit: int | None = None,
    seeds: Sequence[int] = (),
    views: int | None = None,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    shots: int | None = None,
    epochs: int | None = None,
    shard: str | None = None,
    prompts: Mapping[str, Path] | None = None,
    text_features: Path | None = None,
    generated: Path | None = None,
    descriptions: Path | None = None,
    max_errors: int = 100,
    cache: Path | None = None,
    plan: bool = False,
    progress: bool | Watcher | None = None,
) -> Reproduced:
    """Reproduces an item of the paper (``table1``, ``components``, ..., ``pocket``), or your own ``recipe``, in ``out``.

    Steps with valid results are skipped, so the same call resumes after an interruption. ``model`` is the recipe's by default;
    ``plan=True`` only estimates: its ``steps`` have the estimated seconds for this model on its device.
    ``shard="0/4"`` runs one machine's shard, and the call without it merges the shards.

    >>> import flatclip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = flatclip.reproduce(
    ...         "pocket", limit=8, views=4, shots=1, epochs=1, methods=["zero-shot"], datasets=["pocket:sketch"], out=folder,
    ...         progress=False,
    ...     )
    >>> made["open"]
    []
    """
    setup = _setup(locals())
    if plan:
        return _planned(_native.plan(_item_model(item, recipe, model), setup, progress=watcher(progress)))
    made = Reproduced(_native.reproduce(_item_model(item, recipe, model), setup, progress=watcher(progress)))
    # A shard may wait for other shards; a full run with open steps gives incomplete tables.
    if made["open"] and shard is None:
        name, reason = made["open"][0]
        warnings.warn(f"{len(made['open'])} of {made['steps']} steps were not done; the first: {name}: {reason}", stacklevel=2)
    return made


def _planned(steps: list[dict[str, Any]]) -> Reproduced:
    """The plan as text: hours by step, and their sum."""
    total = sum(step["seconds"] for step in steps)
    lines = [f"{step['seconds'] / 3600:10.2f} h  {step['name']}" for step in steps]
    return Reproduced(steps=len(steps), plan=steps, seconds=total, open=[], text="\n".join([*lines, f"{total / 3600:10.2f} h  in all"]))


def _item_model(item: str | None, recipe: Path | None, model: Model | Path | None) -> Model:
    if isinstance(model, Model):
        return model
    return load(_native.recipe_model(item, None if recipe is None else os.fspath(recipe)) if model is None else model)


def _setup(given: dict[str, Any]) -> dict[str, Any]:
    setup = {name: given[name] for name in ["item", "limit", "views", "shots", "epochs", "shard", "max_errors"]}
    for name in ["recipe", "root", "text_features", "generated", "descriptions", "cache", "out"]:
        setup[name] = None if given[name] is None else os.fspath(given[name])
    for name in ["paths", "prompts"]:
        setup[name] = {key: os.fspath(path) for key, path in (given[name] or {}).items()}
    setup["seeds"] = list(given["seeds"])
    for name in ["compat", "methods", "datasets"]:
        setup[name] = _checks.names(given[name], name)
    return setup
