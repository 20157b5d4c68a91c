"""Threads, forked and spawned processes, interrupts, progress."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flatclip

IMAGE = np.random.default_rng(0).integers(0, 255, (48, 40, 3), np.uint8)


def _answer(clf: flatclip.Classifier) -> np.ndarray:
    return clf.predict_proba(IMAGE)


def _evaluate(out: str) -> int:
    runs = flatclip.evaluate("pocket", "pocket:photo::6", "stss", views=4, out=out, progress=False)
    return int(runs[0]["summary"]["samples"])


def test_threads_share_a_classifier(model: flatclip.Model) -> None:
    clf = flatclip.Classifier(model, ["cat", "dog", "fish"], method="stss", views=8)
    expected = _answer(clf)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: _answer(clf), range(32)))
    assert all((answer == expected).all() for answer in answers)


def test_the_lock_is_released_while_work_runs(model: flatclip.Model) -> None:
    done, counted = threading.Event(), 0

    def work() -> None:
        flatclip.Classifier(model, ["cat", "dog"], method="tpt", views=32).predict([IMAGE] * 4)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.wait(0.001):
        counted += 1
    thread.join()
    assert counted > 3, "another thread ran while the image was answered"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_answer_as_their_parent(model: flatclip.Model, method: str, tmp_path: Path) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    clf = flatclip.Classifier(model, ["cat", "dog", "fish"], method="stss", views=8)
    expected = _answer(clf)  # the parent's thread pool exists before the fork
    _evaluate(str(tmp_path / "parent"))
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        answers = pool.map_async(_answer, [clf] * 4).get(timeout=120)
        counts = pool.map_async(_evaluate, [str(tmp_path / f"child-{i}") for i in range(2)]).get(timeout=120)
    assert all((answer == expected).all() for answer in answers) and counts == [6, 6]
    same = (tmp_path / "parent/predictions.jsonl").read_bytes()
    assert all((tmp_path / f"child-{i}/predictions.jsonl").read_bytes() == same for i in range(2))


def test_the_number_of_threads_changes_no_bit(model: flatclip.Model) -> None:
    clf = flatclip.Classifier(model, ["cat", "dog", "fish"], method="mta", views=8)
    try:
        answers = []
        for threads in [1, 2, 3, 0]:
            flatclip.set_num_threads(threads)
            assert threads in (0, flatclip.get_num_threads())
            answers.append(_answer(clf))
    finally:
        flatclip.set_num_threads(0)
    assert all((answer == answers[0]).all() for answer in answers)
    with pytest.raises(ValueError):
        flatclip.set_num_threads(100_000)


LONG = """
import flatclip, sys
print("ready", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("stopped", flush=True)
    sys.exit(0)
print("ended", flush=True)
"""
WORKS = {
    "evaluate": "flatclip.evaluate('pocket', 'pocket:photo::200000', 'tpt', views=64, out=sys.argv[1] + '/run', progress=False)",
    "tune": "flatclip.tune('pocket', 'pocket:photo', 'sapt', shots=8, options={'train.epochs': 5000}, "
    "out=sys.argv[1] + '/run', progress=False)",
    "predict": "flatclip.Classifier('pocket', ['a', 'b'], method='tpt', views=64, progress=False)"
    ".predict(__import__('numpy').zeros((4000, 32, 32, 3), 'uint8'))",
    "a bank in one call": "flatclip.Classifier('random:ViT-B-32', [f'class {i}' for i in range(2000)], method='stss', "
    "perturbations=64).predict(__import__('numpy').zeros((8, 8, 3), 'uint8'))",
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_stops_within_a_second(name: str, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LONG.format(work=WORKS[name]), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(2.5)
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    line = child.stdout.readline()
    took = time.monotonic() - start
    child.kill()
    child.wait()
    # A second for the stop itself; a loaded machine may take longer to schedule either process.
    slack = 1.0 + 0.5 * os.getloadavg()[0]
    assert line == "stopped\n" and took < slack, (line, took)


def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    class Stop:
        def start(self, stage: str, total: int | None) -> None: ...
        def note(self, text: str) -> None: ...
        def finish(self) -> None: ...
        def advance(self, done: int, status: str) -> None:
            if done:
                raise KeyboardInterrupt

    call: dict[str, Any] = {"views": 16, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        flatclip.evaluate("pocket", "pocket:photo::300", "tpt", progress=Stop(), **call)
    for _ in range(100):  # the work saves what is done and leaves the directory
        try:
            runs = flatclip.evaluate("pocket", "pocket:photo::300", "tpt", resume=True, progress=False, **call)
            break
        except flatclip.FlatclipError:
            time.sleep(0.1)
    assert runs[0]["summary"]["samples"] == 300 and runs[0]["timing"]["samples"] < 300


def test_progress_is_told_in_order_and_its_errors_are_raised(model: flatclip.Model) -> None:
    class Watch:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def start(self, stage: str, total: int | None) -> None:
            self.told.append(("start", stage, total))

        def advance(self, done: int, status: str) -> None:
            self.told.append(done)

        def note(self, text: str) -> None: ...
        def finish(self) -> None:
            self.told.append("finish")

    watch = Watch()
    flatclip.Classifier(model, ["a", "b"], method="zero", views=2, progress=watch).predict([IMAGE] * 6)
    assert watch.told[0] == ("start", "zero", 6) and watch.told[-1] == "finish" and watch.told[-2] == 6
    watch.advance = lambda *_: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        flatclip.Classifier(model, ["a", "b"], method="tpt", views=32, progress=watch).predict([IMAGE] * 30)
