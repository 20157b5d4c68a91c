"""What `flatclip.ray` asks of a cluster for models on devices. Ray itself needs no GPU to be asked: a stand-in of a few lines runs
the actors in this process, and records their options. Tests with Ray are in `test_ray.py`."""

from __future__ import annotations

import filecmp
import importlib.util
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import flatclip

SAME = ["predictions.jsonl", "summary.json", "config.toml", "run.json"]
CALL: dict[str, Any] = {"views": 4, "limit": 8, "progress": False}


class Actor:
    """An object whose calls are finished at once. What it is made of is pickled, as between processes."""

    def __init__(self, kind: type, arguments: tuple[Any, ...]) -> None:
        self.made = kind(*pickle.loads(pickle.dumps(arguments)))

    def __getattr__(self, name: str) -> Any:
        return types.SimpleNamespace(remote=lambda *given: Answer(getattr(self.made, name)(*given)))


class Answer:
    """A finished call."""

    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """flatclip.ray on the stand-in, with what it asked for."""
    fake: Any = types.ModuleType("ray")
    fake.options, fake.actors = [], []

    def remote(**options: Any) -> Any:
        def of(kind: type) -> Any:
            def start(*arguments: Any) -> Actor:
                fake.options.append(options)
                fake.actors.append(Actor(kind, arguments))
                return fake.actors[-1]

            return types.SimpleNamespace(remote=start)

        return of

    def get(found: Any) -> Any:
        return [one.value for one in found] if isinstance(found, list) else getattr(found, "value", found)

    fake.remote, fake.get, fake.put = remote, get, lambda value: value
    fake.is_initialized, fake.init, fake.kill = lambda: True, lambda: None, lambda actor: None
    fake.wait = lambda calls, num_returns=1, timeout=None: (calls[:num_returns], calls[num_returns:])
    fake.exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}), RayTaskError=type("RayTaskError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "ray", fake)
    file = Path(flatclip.__file__).parent / "ray.py"
    spec = importlib.util.spec_from_file_location("flatclip.ray_on_a_stand_in", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.fake = fake  # type: ignore[attr-defined]
    return module


def test_each_worker_is_an_actor_with_its_devices(ray: Any, tmp_path: Path) -> None:
    flatclip.evaluate("pocket", "pocket:sketch", "zero", out=tmp_path / "one", **CALL)
    ray.evaluate("pocket", "pocket:sketch", "zero", num_workers=2, num_gpus=1, num_cpus=2, out=tmp_path / "two", **CALL)
    assert [(asked["num_gpus"], asked["num_cpus"]) for asked in ray.fake.options] == [(1, 2), (1, 2)]
    assert len(ray.fake.actors) == 2
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", SAME, shallow=False)[0] == SAME


@pytest.mark.parametrize("call", ["grid", "tune", "reproduce"])
def test_every_call_passes_devices_on(ray: Any, tmp_path: Path, call: str) -> None:
    how: dict[str, Any] = {"num_workers": 2, "num_gpus": 0.5, "progress": False, "out": tmp_path / "out"}
    if call == "grid":
        ray.grid("pocket", "pocket:sketch", ["zero"], views=4, limit=4, **how)
    elif call == "tune":
        ray.tune("pocket", "pocket:photo", "coop", shots=1, options={"train.epochs": 1}, **how)
    else:
        ray.reproduce("pocket", limit=4, views=4, shots=1, epochs=1, datasets=["pocket:sketch"], methods=["zero-shot"], **how)
    assert [asked["num_gpus"] for asked in ray.fake.options] == [0.5, 0.5]


def test_a_model_on_a_device_is_made_again_in_each_actor(ray: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: models on devices are not tested")
    model = flatclip.load("pocket", device="cpu")
    flatclip.evaluate(model, "pocket:sketch", "tpt", out=tmp_path / "one", **CALL)
    ray.evaluate(model, "pocket:sketch", "tpt", num_workers=2, num_gpus=1, out=tmp_path / "two", **CALL)
    models = [actor.made._model for actor in ray.fake.actors]
    assert all(made == model and made is not model and made.device == model.device for made in models)
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", SAME, shallow=False)[0] == SAME
