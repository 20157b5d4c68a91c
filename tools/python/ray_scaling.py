"""Ray on one machine: overhead per image, scaling from one to two workers, the same bytes; lost workers, if asked.

    python tools/python/ray_scaling.py [--images 400] [--views 32] [--kills 5] [--runs 1]

Needs flatclip[ray] and an idle machine. Prints one table; `--kills` kills so many workers in the middle of each run.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

import ray

import flatclip
import flatclip.ray

SAME = ["predictions.jsonl", "summary.json", "config.toml", "run.json", "classes.txt"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--views", type=int, default=32)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--kills", type=int, default=0, help="workers to kill in each run of four workers")
    parser.add_argument("--runs", type=int, default=1, help="runs with kills")
    a = parser.parse_args()
    call = {"views": a.views, "limit": a.images, "progress": False}
    data = f"pocket:hard::{a.images}"
    ray.init(num_cpus=max(4, os.cpu_count() or 1), include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        flatclip.set_num_threads(1)
        start = time.perf_counter()
        flatclip.evaluate(a.model, data, "stss", out=root / "alone", **call)
        alone = time.perf_counter() - start
        print("| what | seconds | ms per image | times one process | same bytes |\n|---|---|---|---|---|")
        print(f"| one process, one thread | {alone:.2f} | {1e3 * alone / a.images:.2f} | 1.00 | |")
        for workers in [1, 2, 4]:
            seen: list[float] = []
            start = time.perf_counter()
            out = root / f"ray-{workers}"
            flatclip.ray.evaluate(
                a.model, data, "stss", num_workers=workers, out=out, on_worker=lambda _: seen.append(time.perf_counter()), **call
            )
            ready = time.perf_counter() - seen[-1]
            equal = filecmp.cmpfiles(root / "alone", out, SAME, shallow=False)[0] == SAME
            name = f"Ray, {workers} worker{'s' * (workers > 1)}, after {seen[-1] - start:.1f} s of starting"
            print(f"| {name} | {ready:.2f} | {1e3 * ready / a.images:.2f} | {ready / alone:.2f} | {equal} |")
        for run in range(a.runs if a.kills else 0):
            processes: list[int] = []
            out = root / f"killed-{run}"
            finished = threading.Event()

            def kill() -> None:
                draw = random.Random(run)
                for _ in range(a.kills):
                    if finished.wait(draw.uniform(0.2, 0.6) * alone / a.kills):
                        return
                    alive = [p for p in processes if Path(f"/proc/{p}").exists()]
                    if alive:
                        os.kill(draw.choice(alive), signal.SIGKILL)

            def watch(process: int) -> None:
                processes.append(process)
                if len(processes) == 4:
                    threading.Thread(target=kill).start()

            start = time.perf_counter()
            flatclip.ray.evaluate(a.model, data, "stss", num_workers=4, shards=16, out=out, on_worker=watch, **call)
            finished.set()
            took = time.perf_counter() - start
            equal = filecmp.cmpfiles(root / "alone", out, SAME, shallow=False)[0] == SAME
            print(f"| run {run + 1} with killed workers | {took:.2f} | {1e3 * took / a.images:.2f} | {took / alone:.2f} | {equal} |")


if __name__ == "__main__":
    main()
