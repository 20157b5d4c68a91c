"""Ray on one machine: shards as tasks, lost workers and nodes, class-parallel tuning."""

from __future__ import annotations

import filecmp
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

ray = pytest.importorskip("ray")
import flatclip.ray as on_ray  # noqa: E402

SAME = ["predictions.jsonl", "summary.json", "config.toml", "run.json", "classes.txt"]
CALL: dict[str, Any] = {"views": 16, "limit": 120, "progress": False}
METHOD, DATA = "stss", "pocket:hard"
SMALL: dict[str, Any] = {"limit": 24, "views": 8, "shots": 1, "epochs": 2, "progress": False}
SMALL["datasets"] = ["pocket:photo", "pocket:sketch"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a single process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    flatclip.evaluate("pocket", DATA, METHOD, out=folder, **CALL)
    return folder


@pytest.fixture(scope="module")
def cluster() -> Any:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield None
    ray.shutdown()


def same(a: Path, b: Path) -> None:
    equal, different, missing = filecmp.cmpfiles(a, b, SAME, shallow=False)
    assert equal == SAME, (different, missing)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_summary_is_byte_equal(cluster: Any, whole: Path, tmp_path: Path, workers: int) -> None:
    runs = on_ray.evaluate("pocket", DATA, METHOD, num_workers=workers, out=tmp_path / "run", **CALL)
    same(whole, tmp_path / "run")
    assert runs[0]["summary"]["samples"] == 120 and not (tmp_path / "run.parts").exists()
    assert runs[0]["views"] == 16


def test_an_own_method_goes_to_the_workers(cluster: Any, tmp_path: Path) -> None:
    @flatclip.register_adapter("ray-mean", options={"tau": 1.0})
    def ray_mean(views: np.ndarray, text: np.ndarray, scale: float, *, tau: float) -> np.ndarray:
        logits = scale / tau * views.mean(0) @ text.T
        return np.exp(logits - logits.max())

    call = {**CALL, "limit": 24, "options": {"tau": 2.0}}
    flatclip.evaluate("pocket", DATA, "ray-mean", out=tmp_path / "one", **call)
    on_ray.evaluate("pocket", DATA, "ray-mean", num_workers=2, out=tmp_path / "run", **call)
    same(tmp_path / "one", tmp_path / "run")


def test_a_killed_worker_changes_nothing(cluster: Any, whole: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(process: int) -> None:
        def soon() -> None:
            time.sleep(0.3)
            os.kill(process, signal.SIGKILL)
            killed.append(process)

        if not killed:
            killed.append(0)
            threading.Thread(target=soon).start()

    on_ray.evaluate("pocket", DATA, METHOD, num_workers=2, shards=6, on_worker=kill, out=tmp_path / "run", **CALL)
    assert len(killed) == 2, "a worker was killed while the run went on"
    same(whole, tmp_path / "run")


def test_faults_are_said_once(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(flatclip.errors.OptionError, match="radius"):
        on_ray.evaluate("pocket", DATA, METHOD, options={"radius": -1.0}, num_workers=1, out=tmp_path / "a", **CALL)
    with pytest.raises(flatclip.errors.MethodError, match="cut"):
        on_ray.evaluate("pocket", DATA, "tda", num_workers=1, out=tmp_path / "b", **CALL)
    with pytest.raises(flatclip.errors.RunError):
        (tmp_path / "c").mkdir()
        (tmp_path / "c/summary.json").write_text("{}")
        on_ray.evaluate("pocket", DATA, METHOD, num_workers=1, out=tmp_path / "c", **CALL)


def test_items_of_a_comparison(cluster: Any, tmp_path: Path) -> None:
    call: dict[str, Any] = {"views": 4, "limit": 12, "progress": False, "num_workers": 2, "out": tmp_path / "grid"}
    runs = on_ray.grid("pocket", ["pocket:photo", "pocket:hard"], ["zero", "tda"], seeds=[0, 1], **call)
    assert len(runs) == 8 and len(on_ray.grid("pocket", "pocket:photo", ["zero"], **call)) == 8


def test_a_comparison_of_opened_data_and_of_wrong_arguments(cluster: Any, tmp_path: Path) -> None:
    call: dict[str, Any] = {"views": 4, "limit": 12, "progress": False, "num_workers": 1, "out": tmp_path / "grid"}
    runs = on_ray.grid("pocket", flatclip.Dataset("pocket:photo"), ["zero"], **call)
    assert [row["dataset"] for row in runs.rows()] == ["pocket:photo"] and runs.rows()[0]["options.fraction"] == 0.3
    with pytest.raises(TypeError, match=r"methods: expected a list of names, found one text: give methods=\['zero'\]"):
        on_ray.grid("pocket", "pocket:photo", "zero", **call)
    memory = flatclip.Dataset.from_images([np.zeros((8, 8, 3), np.uint8)], [0], ["cat", "dog"])
    with pytest.raises(TypeError, match="data: a Dataset of images in memory cannot be pickled"):
        on_ray.grid("pocket", memory, ["zero"], **call)
    with pytest.raises(TypeError, match="data: expected names of data sets or Datasets, found int"):
        on_ray.grid("pocket", [3], ["zero"], **call)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="given twice"):
        on_ray.grid("pocket", ["pocket:photo", flatclip.Dataset("pocket:photo")], ["zero"], **call)


def test_an_item_of_the_paper(cluster: Any, tmp_path: Path) -> None:
    """Tuning and evaluation dealt out to two workers: the tables of one process."""
    one = flatclip.reproduce("pocket", out=tmp_path / "one", **SMALL)
    two = on_ray.reproduce("pocket", num_workers=2, out=tmp_path / "two", **SMALL)
    assert one["open"] == two["open"] == [] and one["text"] == two["text"]
    for name in ["results.json", "table.md", "table.csv"]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.parametrize("method", ["coop", "sapt"])
def test_class_parallel_tuning_is_tuning(cluster: Any, tmp_path: Path, method: str) -> None:
    """20 steps on 3 actors: losses and context within 1e-6 of one process."""
    call: dict[str, Any] = {"shots": 4, "seed": 1, "options": {"train.epochs": 5, "train.batch": 32}, "progress": False}
    alone, summary = flatclip.tune("pocket", "pocket:photo", method, out=tmp_path / "alone", **call)
    split, parallel = on_ray.tune("pocket", "pocket:photo", method, num_workers=3, out=tmp_path / "split", **call)
    assert summary["steps"] == parallel["steps"] == 20
    import json

    def losses(folder: str) -> np.ndarray:
        lines = (tmp_path / folder / "metrics.jsonl").read_text().splitlines()
        return np.array([json.loads(line)["loss"] for line in lines])

    step = np.abs(losses("alone") - losses("split")).max()
    context = np.abs(alone.context - split.context).max()
    print(f"{method}: largest difference of a loss {step:.2e}, of the context {context:.2e}")
    assert step < 1e-6 and context < 1e-6


@pytest.fixture
def two_nodes() -> Any:
    """A cluster of two nodes, and a hook that removes the second one while the workers are at work."""
    from ray.cluster_utils import Cluster

    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    node = cluster.add_node(num_cpus=2)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    removed: list[float] = []

    def remove(_: int) -> None:
        if not removed:
            removed.append(0.0)
            threading.Thread(target=lambda: (time.sleep(0.3), cluster.remove_node(node), removed.append(1.0))).start()

    yield remove
    ray.shutdown()
    cluster.shutdown()
    assert len(removed) == 2, "the node was removed"


def test_a_removed_node_changes_nothing(two_nodes: Any, whole: Path, tmp_path: Path) -> None:
    call = {**CALL, "on_worker": two_nodes, "timeout": 5, "out": tmp_path / "run"}
    on_ray.evaluate("pocket", DATA, METHOD, num_workers=4, shards=12, **call)
    same(whole, tmp_path / "run")


def test_an_item_survives_a_removed_node(two_nodes: Any, tmp_path: Path) -> None:
    one = flatclip.reproduce("pocket", out=tmp_path / "one", **SMALL)
    two = on_ray.reproduce("pocket", num_workers=4, on_worker=two_nodes, timeout=5, out=tmp_path / "two", **SMALL)
    assert one["text"] == two["text"] and two["open"] == []
