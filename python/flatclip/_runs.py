"""Runs: tune, evaluate, sweep, report, landscape. Results are dictionaries, or data frames with pandas or polars."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, _native
from ._methods import source_digest
from ._models import load
from ._native import Dataset, Features, Model, Prompt
from ._progress import Watcher, watcher

Path = str | os.PathLike[str]
Data = str | Dataset | Sequence[str | Dataset]


class Runs(list[dict[str, Any]]):
    """Finished runs, one dictionary each: ``dir``, ``views``, ``config``, ``summary``, ``timing``."""

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per run, with the same keys for all: data set, method, seed, prompt, numbers, and each option of a
        method as ``options.NAME`` (None for the methods without it)."""
        rows = [_row(run) for run in self]
        keys = dict.fromkeys(key for row in rows for key in row)
        return [{key: row.get(key) for key in keys} for row in rows]

    def to_pandas(self) -> Any:
        """A pandas frame, one row per run."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_polars(self) -> Any:
        """A polars frame, one row per run."""
        import polars

        return polars.DataFrame(self.rows())

    def __repr__(self) -> str:
        shown = [f"{row['dataset']} {row['method']} seed {row['seed']}: top-1 {row['top1']:.2f}" for row in self.rows()]
        return f"<flatclip.Runs: {len(self)} runs>" + "".join(f"\n  {line}" for line in shown)

    def _repr_html_(self) -> str:
        rows = self.rows()
        head = "".join(f"<th>{name}</th>" for name in (rows[0] if rows else {}))
        body = "".join("<tr>" + "".join(f"<td>{_shown(v)}</td>" for v in row.values()) + "</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


class Table(dict[str, Any]):
    """A table: ``title``, ``columns``, ``rows``, and as ``text``, ``markdown``, ``latex``, ``csv``, ``html``."""

    def to_pandas(self) -> Any:
        """A pandas frame."""
        import pandas

        return pandas.DataFrame(self["rows"], columns=self["columns"])

    def to_polars(self) -> Any:
        """A polars frame."""
        import polars

        return polars.DataFrame(self["rows"], schema=self["columns"], orient="row")

    def __str__(self) -> str:
        return str(self["text"])

    def __repr__(self) -> str:
        return f"<flatclip.Table {self['title']!r}: {len(self['rows'])} rows, columns {', '.join(self['columns'])}>"

    def _repr_html_(self) -> str:
        return str(self["html"])


class Report:
    """Finished runs as tables and figures (SVG)."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.runs: list[dict[str, Any]] = found["runs"]
        self.tables = [Table(table) for table in found["tables"]]
        self.figures: list[str] = found["figures"]

    def __str__(self) -> str:
        return "\n".join(str(table) for table in self.tables)

    def __repr__(self) -> str:
        return f"<flatclip.Report of {len(self.runs)} runs: {len(self.tables)} tables, {len(self.figures)} figures>"

    def _repr_html_(self) -> str:
        return "".join([*(table["html"] for table in self.tables), *self.figures])


class Landscape:
    """Loss surfaces around prompts: ``record`` is what ``landscape.json`` holds, ``figures`` are SVG."""

    def __init__(self, found: Mapping[str, Any], out: str) -> None:
        self.record: dict[str, Any] = found["record"]
        self.flatness: list[dict[str, Any]] = found["flatness"]
        self.figures: list[str] = found["figures"]
        self.out = out

    def surface(self, index: int = 0) -> NDArray[np.float64]:
        """The losses of one surface, ``[points, points]``."""
        return np.array(self.record["results"][index]["surface"]["values"])

    def __repr__(self) -> str:
        return f"<flatclip.Landscape of {len(self.record['results'])} surfaces in {self.out}>"

    def _repr_html_(self) -> str:
        return "".join(self.figures)


def evaluate(
    model: Model | Path | Features,
    data: Data | None = None,
    method: str | Sequence[str] | None = None,
    *,
    out: Path,
    options: Mapping[str, Any] | None = None,
    prompt: Any = None,
    own_templates: bool = False,
    views: int | None = None,
    certainty: float | None = None,
    view_policy: str = "crop-flip",
    seeds: int | Sequence[int] = 0,
    order_seed: int | None = None,
    limit: int | None = None,
    shard: str | None = None,
    max_errors: int = 100,
    keep_probabilities: bool = False,
    generated: Path | None = None,
    statistics: Path | None = None,
    cache: Path | None = None,
    any_model: bool = False,
    exif: bool | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
) -> Runs:
    """Evaluates methods on data sets; every run gets a directory below ``out``, as ``flatclip eval`` writes it.

    ``data`` is a `Dataset` or its name: ``folder:DIR``, ``zhou:DIR``, ``csv:FILE``, ``wds:SHARDS``, ``pocket:DOMAIN``, a
    known data set; or several. ``method=None`` is ``stss`` with a sapt prompt, else ``zero-shot``. ``exif=None`` reads known
    data sets as Pillow does and your own images as a person sees them; ``True`` and ``False`` choose. ``options`` are those
    of the method, or ``{"stss.radius": 0.3}`` for several methods. ``keep_probabilities=True`` keeps the probability of every
    class in ``predictions.jsonl``, for metrics of your own.
    Imported `Features` replace model and data: ``evaluate(features, method="zero", out=...)``.
    ``shard="0/4"`` evaluates a part; `merge` merges the shards. ``resume=True`` resumes an interrupted run.

    >>> import flatclip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     runs = flatclip.evaluate("pocket", "pocket:sketch", "zero", views=4, limit=8, out=folder, progress=False)
    >>> runs[0]["summary"]["samples"]
    8
    """
    setup = _setup(locals())
    setup["methods"] = [method] if isinstance(method, str) else list(method or ())
    setup["shard"], setup["keep_probabilities"] = shard, bool(keep_probabilities)
    return Runs(_native.evaluate(*_subject(model, data), setup, progress=watcher(progress)))


def sweep(
    model: Model | Path | Features,
    data: Data | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    method: str = "stss",
    *,
    out: Path,
    ablation: str | None = None,
    options: Mapping[str, Any] | None = None,
    prompt: Any = None,
    own_templates: bool = False,
    views: int | None = None,
    certainty: float | None = None,
    view_policy: str = "crop-flip",
    seeds: int | Sequence[int] = 0,
    order_seed: int | None = None,
    limit: int | None = None,
    max_errors: int = 100,
    generated: Path | None = None,
    statistics: Path | None = None,
    cache: Path | None = None,
    any_model: bool = False,
    exif: bool | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
) -> dict[str, Table]:
    """Runs a grid, ``axes={"stss.radius": [0, 0.5]}``; also ``method``, ``prompt``, ``views``, ``seed``, or an ``ablation`` of
    the paper (``radius``, ``fraction``, ``directions``). One table per data set; figures and a page are written to ``out``."""
    setup = _setup(locals())
    setup["methods"], setup["shard"], setup["keep_probabilities"] = [method], None, False
    grid = [(key, [_word(value) for value in values]) for key, values in (axes or {}).items()]
    found = _native.sweep(
        *_subject(model, data), setup, axes=grid, ablation=ablation, progress=watcher(progress)
    )
    return {swept["dataset"]: Table(swept["table"]) for swept in found}


def merge(parts: Sequence[Path], out: Path) -> dict[str, Any]:
    """Merges the shards of a run; the result is byte-identical to a single-process run. Returns the summary."""
    return _native.merge([os.fspath(part) for part in parts], os.fspath(out))


def report(
    runs: Path | Sequence[Path],
    *,
    against_paper: bool = False,
    tolerance: float = 0.5,
    paired: bool = False,
    reference: str | None = None,
    order: str = "paper",
) -> Report:
    """Finished runs below the given folders as tables and figures. ``flatclip report --html`` writes the page.

    ``reference`` is the row that ``paired`` compares with: a run directory, ``"template + zero-shot"``, a method or a prompt.
    ``order`` of rows is ``"paper"`` or ``"given"``.
    """
    paths = [runs] if isinstance(runs, (str, os.PathLike)) else list(runs)
    found = _native.report(
        [os.fspath(path) for path in paths], against_published=against_paper, tolerance=tolerance, paired=paired,
        reference=reference, order=order,
    )
    return Report(found)


def tune(
    model: Model | Path,
    data: str | Dataset,
    method: str = "sapt",
    *,
    out: Path,
    shots: int | None = None,
    held_out: int | None = None,
    seed: int = 1,
    sampler: str = "portable",
    allow_fewer: bool = False,
    list: Path | None = None,
    max_errors: int = 0,
    search: bool = False,
    checkpoint_every: int = 100,
    options: Mapping[str, Any] | None = None,
    test: Dataset | None = None,
    loss: Callable[[NDArray[np.float32], NDArray[np.int64]], tuple[float, Any]] | None = None,
    exif: bool | None = None,
    text_precision: str | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
) -> tuple[Prompt, dict[str, Any]]:
    """Learns a prompt from a few images per class, in a run directory; returns the prompt and the summary.

    ``data`` is opened with its training split. ``options`` are ``{"train.epochs": 20, "sapt.radius": 0.5}``.
    ``loss`` takes the place of the cross-entropy for ``coop`` and ``sapt`` (which then perturbs by its gradient): it gets
    logits ``[B, K]`` and labels ``[B]`` and gives the loss and its gradient by the logits. The gradient is compared with
    finite differences at the first batch, and a digest of the source is part of the run's settings. ``text_precision`` is that of
    the text tower: ``"f32"``, ``"i16"``, or by default i16 for ``coop`` and ``sapt`` where its
    products are fast, unless the model was loaded with ``precision="f32"``.

    >>> import flatclip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     prompt, summary = flatclip.tune(
    ...         "pocket", "pocket:photo", "coop", shots=1, options={"train.epochs": 1}, out=folder + "/run", progress=False
    ...     )
    >>> prompt.kind, summary["method"]
    ('learned', 'coop')
    """
    setup = {
        "method": method, "shots": _checks.count(shots, "shots"), "held_out": held_out, "seed": _checks.seed(seed, "seed"),
        "sampler": sampler, "allow_fewer": allow_fewer, "list": None if list is None else os.fspath(list), "max_errors": max_errors,
        "search": search, "checkpoint_every": checkpoint_every, "options": dict(options or {}), "out": os.fspath(out),
        "exif": exif, "text_precision": text_precision, "resume": resume,
    }  # fmt: skip
    train = data if isinstance(data, Dataset) else Dataset(data, split="train")
    named = None if loss is None else (f"{getattr(loss, '__name__', 'loss')}, source {source_digest(loss)}", loss)
    summary = _native.tune(_model(model), train, setup, test=test, loss=named, progress=watcher(progress))
    return Prompt(os.fspath(out)), summary


def landscape(
    model: Model | Path,
    prompts: Any = None,
    *,
    out: Path,
    data: str | Dataset | None = None,
    shots: int = 16,
    image: Any = None,
    classes: Sequence[str] | None = None,
    points: int = 31,
    span: float = 1.0,
    scale: str | float = "per-token",
    seed: int = 1,
    exif: bool | None = None,
    progress: bool | Watcher | None = None,
) -> Landscape:
    """The loss around prompts: cross-entropy over shots of ``data``, or the entropy of a selected and a rejected view of
    ``image``. ``prompts`` is a dictionary of names and prompts, or a list; the files are written to ``out``."""
    if prompts is None:
        named = []
    elif isinstance(prompts, Mapping):
        named = list(prompts.items())
    else:
        named = [(None, prompt) for prompt in prompts]
    train = Dataset(data, split="train") if isinstance(data, str) else data
    found = _native.landscape(
        _model(model), named, data=train, shots=shots, image=image, classes=classes, points=points, span=span,
        scale=str(scale), seed=seed, exif=exif, out=os.fspath(out), progress=watcher(progress),
    )  # fmt: skip
    return Landscape(found, os.fspath(out))


def sam_step(
    loss: Callable[[list[NDArray[np.float32]]], tuple[float, Sequence[Any]]],
    parameters: Sequence[Any],
    *,
    radius: float = 0.5,
    weight: float = 1.0,
    **options: Any,
) -> dict[str, Any]:
    """The gradient of one sharpness-aware step, as SAPT takes it, for a custom tuning loop.

    ``loss`` gets parameters and gives the loss and its gradients there. The result has ``gradient`` (to follow), ``loss``,
    ``perturbed_loss`` and ``epsilon``. ``options`` are SAPT's: ``perturbation`` (``sam``, ``asam``, ``fisher-sam``), ``norm``.

    >>> import flatclip, numpy as np
    >>> step = flatclip.sam_step(lambda p: (float((p[0] ** 2).sum()), [2 * p[0]]), [np.array([3.0, 4.0])], radius=0.5)
    >>> step["loss"], round(step["perturbed_loss"], 2)
    (25.0, 30.25)
    """
    at = [np.asarray(parameter, np.float32) for parameter in parameters]
    first, slopes = loss(at)
    settings = {"radius": radius, "weight": weight, **options}
    epsilon = _native.sam_epsilon(at, list(slopes), options=settings)
    second, steep = loss([p + e for p, e in zip(at, epsilon)])
    mixed = [(1 - weight) * np.asarray(a, np.float32) + weight * np.asarray(b, np.float32) for a, b in zip(slopes, steep)]
    return {"loss": first, "perturbed_loss": second, "gradient": mixed, "epsilon": epsilon}


def _setup(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that `evaluate` and `sweep` share."""
    seeds = given["seeds"]
    shared = ["own_templates", "certainty", "view_policy", "order_seed", "max_errors", "any_model", "exif", "resume"]
    setup = {name: given[name] for name in [*shared, "prompt"]}
    for name in ["views", "limit"]:
        setup[name] = _checks.count(given[name], name)
    for name in ["generated", "statistics", "cache", "out"]:
        setup[name] = None if given[name] is None else os.fspath(given[name])
    setup["options"] = dict(given["options"] or {})
    several = isinstance(seeds, Iterable) and not isinstance(seeds, str)
    setup["seeds"] = [_checks.seed(seed, "seeds") for seed in (seeds if several else [seeds])]
    setup["compat"] = []
    return setup


def _model(model: Model | Path | Callable[[], Model]) -> Model:
    if isinstance(model, Model):
        return model
    return model() if callable(model) else load(model)


def _subject(model: Model | Path | Features, data: Data | None) -> tuple[Model | Features, list[Dataset]]:
    """The model or features to evaluate, and the data sets; imported features include their data set."""
    if isinstance(model, Features):
        if data is not None:
            raise TypeError("data: imported features have samples and labels of their own; omit it")
        return model, []
    if data is None:
        raise TypeError("data: expected a data set for a model, found none")
    return _model(model), _datasets(data)


def _datasets(data: Data) -> list[Dataset]:
    many = [data] if isinstance(data, (str, Dataset)) else data
    return [one if isinstance(one, Dataset) else Dataset(one) for one in many]


def _row(run: dict[str, Any]) -> dict[str, Any]:
    summary, metrics, config = run["summary"], run["summary"]["metrics"], run["config"]
    options = {f"options.{name}": value for name, value in config.get("options", {}).items()}
    return {
        "dataset": summary["dataset"], "method": summary["method"], "prompt": config["prompt"], "seed": config["seed"],
        "views": run["views"], "samples": summary["samples"], "failed": summary["failed"],
        "top1": metrics["top1"], "top5": metrics["top5"], "ece": metrics["calibration"]["ece"],
        "seconds": run["timing"]["wall"], "encode_seconds": run["timing"]["encode"],
        "adapt_seconds": run["timing"]["adapt"], "dir": run["dir"], **options,
    }  # fmt: skip


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
