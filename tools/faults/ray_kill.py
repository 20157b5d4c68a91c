"""Evaluations on a Ray cluster of this machine whose workers are killed: are the files those of a single process?

    python ray_kill.py FOLDER RUNS        prints a JSON line for a run that is left alone and one for each that is not
"""
import filecmp
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

import flatclip
import flatclip.ray as on_ray
import ray

SAME = ["predictions.jsonl", "summary.json", "config.toml", "run.json", "classes.txt"]
CALL = {"views": 4, "limit": 500, "progress": False}
KILLS = 5


def descendants(of):
    """Processes below one, with their names."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            process = int(entry.name)
            parents[process] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            names[process] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except (ValueError, OSError):
            continue
    found, open_ = {}, [of]
    while open_:
        parent = open_.pop()
        below = [process for process, above in parents.items() if above == parent]
        found.update({process: names.get(process, "") for process in below})
        open_ += below
    return found


def kill_workers(until, killed, draw):
    """Kills a worker of this process's own cluster now and then, until enough are killed or the run is over."""
    while not until.is_set() and len(killed) < KILLS:
        time.sleep(0.2 + 0.6 * draw.random())
        workers = [process for process, name in descendants(os.getpid()).items() if name.startswith("ray::_Worker")]
        if workers and not until.is_set():
            process = draw.choice(sorted(workers))
            try:
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            except ProcessLookupError:
                pass


def main(folder, runs):
    folder = pathlib.Path(folder)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    whole = folder / "whole"
    flatclip.evaluate("pocket", "pocket:hard", "stss", out=whole, **CALL)
    for run in range(-1, runs):
        out, killed, over = folder / f"run-{run}", [], threading.Event()
        thread = threading.Thread(target=kill_workers, args=(over, killed, random.Random(run)))
        start = time.time()
        if run >= 0:
            thread.start()
        on_ray.evaluate("pocket", "pocket:hard", "stss", num_workers=4, shards=20, out=out, **CALL)
        seconds = time.time() - start
        over.set()
        if run >= 0:
            thread.join()
        equal, _, _ = filecmp.cmpfiles(whole, out, SAME, shallow=False)
        line = {"seconds": seconds, "kills": len(killed), "different": [name for name in SAME if name not in equal]}
        print(json.dumps(line | ({"run": run} if run >= 0 else {})), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
