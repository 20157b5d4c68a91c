"""Runs on a Ray cluster: ``pip install flatclip[ray]``.

Shards are tasks on actors that load the model once. A shard writes its own run directory below ``out`` (storage shared by
all nodes) and resumes an interrupted one, so a task can be repeated. Shards are merged as by ``flatclip report merge``; the
result is byte-identical to a single-process run.

An actor that dies is restarted (``max_restarts``) and its task retried (``max_task_retries``). Permanent errors (a wrong
option, unreadable images) are not retried.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks, _methods, _native, errors
from ._native import Dataset, Model, Prompt, TextTower
from ._progress import Watcher, watcher
from ._reproduce import Reproduced, _item_model
from ._reproduce import reproduce as _reproduce
from ._runs import Runs, _model
from ._runs import evaluate as _evaluate
from ._runs import merge as _merge

try:
    import ray
except ImportError as error:  # pragma: no cover
    raise ImportError("flatclip.ray needs Ray: pip install flatclip[ray]") from error

RETRIES = 5
"""How often a lost worker is restarted and its shard retried."""


def _actor(kind: type, **options: Any) -> Any:
    """Makes a class a Ray actor; starts a local cluster if there is none."""
    if not ray.is_initialized():
        ray.init()
    remote: Any = ray.remote
    return remote(**options)(kind)


class _Worker:
    """One process with the model in memory."""

    def __init__(self, model: Model | str, threads: int, methods: Sequence[Any] = ()) -> None:
        _native.set_num_threads(threads)
        _methods.restore(methods)
        self._model = _model(model)

    def shard(self, data: Any, method: str, keywords: dict[str, Any]) -> tuple[str, float]:
        """Evaluates a shard, or resumes it."""
        try:
            run = _evaluate(self._model, data, method, resume=True, progress=False, **keywords)[0]
        except errors.FlatclipError as fault:
            raise _Refused(fault.message, fault.code, fault.hint) from None
        return run["dir"], run["timing"]["wall"]

    def part(self, item: str | None, keywords: dict[str, Any]) -> int:
        """Runs this worker's share of an item as far as possible; returns the number of finished steps."""
        try:
            return int(_reproduce(item, self._model, progress=False, **keywords)["done"])
        except errors.FlatclipError as fault:
            raise _Refused(fault.message, fault.code, fault.hint) from None

    def ready(self) -> int:
        """Returns once the model is loaded."""
        return os.getpid()


class _Refused(errors.FlatclipError):
    """A permanent error: a retry would fail again."""


def evaluate(
    model: Model | str | os.PathLike[str],
    data: str | Dataset,
    method: str = "stss",
    *,
    out: str | os.PathLike[str],
    num_workers: int = 2,
    shards: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    threads: int | None = None,
    resume: bool = False,
    progress: bool | Watcher | None = None,
    timeout: float = 30.0,
    on_worker: Callable[[int], None] | None = None,
    **keywords: Any,
) -> Runs:
    """Evaluates one method on one data set, on ``num_workers`` actors; the files in ``out`` are those of `flatclip.evaluate`.

    ``shards`` is the number of parts (default: four per worker); at most one part is lost when a worker dies. ``threads`` is
    the number of threads of one worker (default: its ``num_cpus``). ``out`` and ``cache`` must be on storage shared by all
    nodes. Further keywords are those of `flatclip.evaluate`. Online and batch methods cannot be sharded and are refused. A
    worker that does not respond for ``timeout`` seconds (its node is lost, and no other has resources) is given up, and its
    part is run by another. With ``num_gpus=1`` each actor has its own device: pass a model loaded with ``device="cuda"``, or a
    function that makes one there (an `Encoder`, a `from_torch` model). ``on_worker`` is called with the process id of every
    worker that has loaded the model.
    """
    folder, parts = Path(os.fspath(out)).absolute(), Path(os.fspath(out) + ".parts").absolute()
    if (folder / "summary.json").exists() and not resume:
        raise errors.make("run.unusable", f"{folder}: holds a finished run", "give resume=True, or another out=")
    kind = _native.method_info(method)["kind"]
    if kind != "episodic":
        reason = f"method {method}: predictions of an {kind} method depend on other images of the run, so the run cannot be sharded"
        raise errors.make("method.needs", reason, "run it in one process: flatclip.evaluate")
    count = shards or 4 * num_workers
    # Two calls at once: a busy worker still responds to `ready`.
    actor = _actor(_Worker, max_restarts=RETRIES, max_task_retries=RETRIES, max_concurrency=2, num_cpus=num_cpus, num_gpus=num_gpus)
    name = model if isinstance(model, Model) or callable(model) else os.fspath(model)
    own = _methods.exported([method])
    workers = [actor.remote(name, threads or max(1, int(num_cpus)), own) for _ in range(num_workers)]
    if on_worker is not None:
        for process in ray.get([worker.ready.remote() for worker in workers]):
            on_worker(process)
    watch = watcher(progress)
    if watch is not None:
        watch.start(f"{method}, {count} shards on {num_workers} workers", count)
    shares = [{**keywords, "out": str(parts), "shard": f"{shard}/{count}"} for shard in range(count)]
    calls = [lambda worker, given=given: worker.shard.remote(data, method, given) for given in shares]
    try:
        dirs = [place for place, _ in _dealt(workers, calls, timeout, watch)]
    finally:
        for worker in workers:
            ray.kill(worker)
    if (folder / "summary.json").exists():
        shutil.rmtree(folder)
    summary = _merge(dirs, folder)
    shutil.rmtree(parts)
    found = _native.report([str(folder)])["runs"][0]
    if watch is not None:
        watch.finish()
    views = found["config"]["views"]["count"]
    row = {"dir": str(folder), "views": views, "config": found["config"], "summary": summary, "timing": found["timing"]}
    return Runs([row])


def _dealt(
    workers: list[Any], calls: Sequence[Callable[[Any], Any]], timeout: float, watch: Watcher | None = None
) -> list[Any]:
    """Runs the calls on free workers; repeats those of a lost worker on another. Removes lost workers from ``workers``."""
    waiting, free = list(range(len(calls))), list(workers)
    running: dict[Any, tuple[int, Any]] = {}
    found: dict[int, Any] = {}
    while len(found) < len(calls):
        while waiting and free:
            number, worker = waiting.pop(0), free.pop(0)
            running[calls[number](worker)] = (number, worker)
        if not running:
            raise errors.make("run.unusable", "all workers of the cluster are lost", "repeat the call: it resumes from the finished parts")
        finished, _ = ray.wait(list(running), num_returns=1, timeout=timeout)
        for task in finished or _silent(running, timeout):
            number, worker = running.pop(task)
            try:
                found[number] = ray.get(task)
                free.append(worker)
            except ray.exceptions.RayTaskError as error:
                raise _own_fault(error) from None
            except ray.exceptions.RayError:
                waiting.append(number)
                workers.remove(worker)
                ray.kill(worker)
        if watch is not None:
            watch.advance(len(found), "")
    return [found[number] for number in range(len(calls))]


def _silent(running: dict[Any, tuple[int, Any]], timeout: float) -> list[Any]:
    """Tasks whose worker does not respond: its node is lost and it cannot be restarted. They are given up."""
    calls = {worker.ready.remote(): (task, worker) for task, (_, worker) in running.items()}
    _, unanswered = ray.wait(list(calls), num_returns=len(calls), timeout=timeout)
    for call in unanswered:
        ray.kill(calls[call][1])
    return [calls[call][0] for call in unanswered]


def reproduce(
    item: str | None = None,
    model: Model | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    num_workers: int = 2,
    num_cpus: float = 1,
    num_gpus: float = 0,
    threads: int | None = None,
    progress: bool | Watcher | None = None,
    timeout: float = 30.0,
    on_worker: Callable[[int], None] | None = None,
    **keywords: Any,
) -> Reproduced:
    """An item of the paper on ``num_workers`` actors; the tables in ``out`` are those of `flatclip.reproduce`.

    Every actor runs its share of the steps: whole tuning runs and online methods, and a shard of all other evaluations.
    Evaluations need prompts that other actors tune, so the shares are repeated until no step is left; then this process
    merges the parts. A lost actor is restarted and resumes from ``out``, which must be shared by all nodes; if it cannot be
    restarted (see ``timeout`` of `evaluate`), another runs its share.
    Further keywords are those of `flatclip.reproduce`.
    """
    loaded = _item_model(item, keywords.get("recipe"), model)
    actor = _actor(_Worker, max_restarts=RETRIES, max_task_retries=RETRIES, max_concurrency=2, num_cpus=num_cpus, num_gpus=num_gpus)
    workers = [actor.remote(loaded, threads or max(1, int(num_cpus))) for _ in range(num_workers)]
    if on_worker is not None:
        for process in ray.get([worker.ready.remote() for worker in workers]):
            on_worker(process)
    folder = str(Path(os.fspath(out)).absolute())
    shares = [{**keywords, "out": folder, "shard": f"{number}/{num_workers}"} for number in range(num_workers)]
    calls = [lambda worker, share=share: worker.part.remote(item, share) for share in shares]
    try:
        while any(_dealt(workers, calls, timeout)):
            pass
    finally:
        for worker in workers:
            ray.kill(worker)
    return _reproduce(item, loaded, progress=progress, **{**keywords, "out": folder})


def _own_fault(error: Any) -> Exception:
    cause = error.cause
    return errors.make(cause.code, cause.message, cause.hint) if isinstance(cause, errors.FlatclipError) else error


class _Tower:
    """The text tower over some of the classes."""

    def __init__(self, model: Model | str, classes: list[str], tokens: int, position: str, threads: int) -> None:
        _native.set_num_threads(threads)
        self._tower = TextTower(_model(model), classes, tokens=tokens, position=position)

    def forward(self, context: NDArray[np.float32]) -> NDArray[np.float32]:
        """Text features of this part."""
        return self._tower.forward(context)

    def gradient(self, d_features: NDArray[np.float32]) -> NDArray[np.float32]:
        """This part's share of the context's gradient."""
        return self._tower.gradient(d_features)


def tune(
    model: Model | str | os.PathLike[str],
    data: str | Dataset,
    method: str = "sapt",
    *,
    out: str | os.PathLike[str],
    num_workers: int = 2,
    num_cpus: float = 1,
    num_gpus: float = 0,
    threads: int | None = None,
    options: dict[str, Any] | None = None,
    progress: bool | Watcher | None = None,
    **keywords: Any,
) -> tuple[Prompt, dict[str, Any]]:
    """Class-parallel tuning: each actor runs the text tower over its share of the classes.

    A step sends the context out (8 KB for four tokens of ViT-B), gathers the text features (classes x D floats), sends the
    gradients of the features back and adds up the gradients of the context, always in the order of the classes. The rest,
    data, schedule, sharpness, checkpoints, is `flatclip.tune`: the result is equal up to the order of additions. An actor
    that dies ends the run; ``resume=True`` resumes from the last checkpoint. For ``coop`` and ``sapt`` with a shared context.
    """
    own = dict(options or {})
    words = own.get(f"{method}.words", _native.method_info(method)["defaults"]["words"])
    position = own.get(f"{method}.position", "end")
    loaded = _model(model)
    tokens = own.get(f"{method}.n_ctx", 0) or (len(loaded.embed_words(words)) if words.strip() else 16)
    train = data if isinstance(data, Dataset) else Dataset(data, split="train")
    actor = _actor(_Tower, num_cpus=num_cpus, num_gpus=num_gpus)
    name = model if isinstance(model, Model) or callable(model) else os.fspath(model)
    cuts = np.array_split(np.arange(len(train.classes)), num_workers)
    shares = [[train.classes[i] for i in cut] for cut in cuts if len(cut)]
    towers = [actor.remote(name, share, tokens, position, threads or max(1, int(num_cpus))) for share in shares]
    borders = np.cumsum([len(share) for share in shares])[:-1]

    def forward(context: NDArray[np.float32]) -> NDArray[np.float32]:
        shared = ray.put(context)
        return np.concatenate(ray.get([tower.forward.remote(shared) for tower in towers]))

    def gradient(d_features: NDArray[np.float32]) -> NDArray[np.float32]:
        parts = np.split(d_features, borders)
        shares = ray.get([tower.gradient.remote(part) for tower, part in zip(towers, parts)])
        total: NDArray[np.float64] = np.stack(shares).astype(np.float64).sum(axis=0)
        return total.astype(np.float32)

    setup: dict[str, Any] = {
        "method": method, "shots": None, "held_out": None, "seed": 1, "sampler": "portable", "allow_fewer": False,
        "list": None, "max_errors": 0, "search": False, "checkpoint_every": 100, "exif": None, "text_precision": None,
        "resume": False, **keywords,
        "options": own, "out": os.fspath(out),
    }  # fmt: skip
    try:
        summary = _native.tune(loaded, train, setup, text=(forward, gradient), progress=watcher(progress))
    finally:
        for tower in towers:
            ray.kill(tower)
    return Prompt(os.fspath(out)), summary


def grid(
    model: Model | str | os.PathLike[str],
    data: str | Dataset | Sequence[str | Dataset],
    methods: Sequence[str],
    *,
    out: str | os.PathLike[str],
    seeds: Sequence[int] = (0,),
    num_workers: int = 2,
    num_cpus: float = 1,
    num_gpus: float = 0,
    progress: bool | Watcher | None = None,
    timeout: float = 30.0,
    **keywords: Any,
) -> Runs:
    """The items of a comparison (data sets x methods x seeds) as tasks, each a run directory as `flatclip.evaluate` writes it.

    ``data`` are names of data sets or `Dataset`s that were opened by name; those of images in memory cannot be sent to
    workers. Methods of every kind are possible, since an item is not sharded. A repeated call skips finished items. The item
    of a lost worker is run by another after ``timeout`` seconds, as in `evaluate`.
    """
    chosen, sources = _checks.names(methods, "methods"), _sources(data)
    actor = _actor(_Worker, max_restarts=RETRIES, max_task_retries=RETRIES, max_concurrency=2, num_cpus=num_cpus, num_gpus=num_gpus)
    name = model if isinstance(model, Model) or callable(model) else os.fspath(model)
    workers = [actor.remote(name, max(1, int(num_cpus)), _methods.exported(chosen)) for _ in range(num_workers)]
    items = [(source, method, seed) for source in sources.items() for method in chosen for seed in seeds]
    watch = watcher(progress)
    if watch is not None:
        watch.start(f"{len(items)} runs on {num_workers} workers", len(items))
    folder = Path(os.fspath(out)).absolute()

    def start(worker: Any, item: tuple[tuple[str, str | Dataset], str, int]) -> Any:
        (name, source), method, seed = item
        place = folder / name.replace(":", "-").replace("/", "-") / method / f"seed-{seed}"
        return worker.shard.remote(source, method, {**keywords, "seeds": seed, "out": str(place)})

    calls = [lambda worker, item=item: start(worker, item) for item in items]
    try:
        _dealt(workers, calls, timeout, watch)
    finally:
        for worker in workers:
            ray.kill(worker)
    found = _native.report([str(folder)])["runs"]
    rows = [
        {"dir": run["path"], "views": run["config"]["views"]["count"], **{k: run[k] for k in ["config", "summary", "timing"]}}
        for run in found
    ]
    return Runs(rows)


def _sources(data: Any) -> dict[str, str | Dataset]:
    """Data sets by the name of their folder; refuses data sets that a worker could not open."""
    found: dict[str, str | Dataset] = {}
    for one in [data] if isinstance(data, (str, Dataset)) else data:
        if not isinstance(one, (str, Dataset)):
            raise TypeError(f"data: expected names of data sets or Datasets, found {type(one).__name__}")
        if isinstance(one, Dataset):
            try:
                pickle.dumps(one)
            except TypeError as error:
                raise TypeError(f"data: {error}") from None
        name = one if isinstance(one, str) else one.name
        if name in found:
            raise ValueError(f"data: {name} is given twice; each data set has one folder below out")
        found[name] = one
    return found


__all__ = ["evaluate", "grid", "reproduce", "tune"]
