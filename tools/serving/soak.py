"""A load for a while at a share of the capacity, where memory and open files must stay flat, and loads above it."""

import os
import re
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

from load import classify, load
from server import running


def requests(*kinds):
    """Several images, with methods and views in turn."""
    made = []
    for number in range(12):
        rgb = bytes((place * 5 + number * 29 + place // 211 * number) % 256 for place in range(96 * 96 * 3))
        method, views = kinds[number % len(kinds)]
        made.append(classify(96, 96, rgb, classes="fish,lamp,snail,boat,clock", method=method, views=views))
    return made


def memory(server):
    """Resident memory in bytes."""
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())[1])


def files(server):
    """Open files and sockets."""
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def start(binary, folder, *arguments):
    """A server whose refusals are logged, and whose cache lies, in this folder."""
    environment = os.environ | {"FLATCLIP_CACHE": str(folder / "cache")}
    return running(binary, folder, *arguments, env=environment, stderr=open(folder / "serve.log", "ab"))


def slope_kb(samples):
    """Kilobytes per ten minutes, by least squares over the second half of (seconds, bytes)."""
    return statistics.linear_regression(*zip(*samples[len(samples) // 2 :])).slope * 600 / 1024


def is_flat(seconds, slope):
    """Below 1 MB in ten minutes; over a short time, where a page more or less is a steep slope, no growth above 2 MB. Growth is
    that of the line, not of two samples: a single one has a request's buffers in it."""
    return slope < 1024 or (seconds < 600 and slope * (seconds / 2) / 600 < 2048)


def soak(options, folder):
    seconds, samples, over = 60 * options.minutes, [], threading.Event()
    # A copy: what is built meanwhile does not change what runs.
    binary = shutil.copy(options.binary, folder / "flatclip")
    with start(binary, folder) as (address, server):
        asked = requests(("zero-shot", 1), ("zero", 16), ("stss", 32), ("vte", 8))
        load(address, 4, asked, seconds=3)
        rate = load(address, 8, asked, seconds=min(max(seconds / 20, 3), 20)).per_second() * options.share
        before, begin = files(server), time.monotonic()

        def watch():
            while not over.wait(0.5):
                samples.append((time.monotonic() - begin, memory(server)))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            found = load(address, 16, asked, seconds=seconds, rate=rate)
        finally:
            over.set()
            watcher.join()
        assert len(samples) >= 4, "too short"
        time.sleep(0.3)
        after = files(server)
    for passed, size in samples[:: max(len(samples) // 30, 1)]:
        print(f"{passed:7.0f} s  {size / 1048576:8.1f} MB")
    answered, slope = found.statuses.total(), slope_kb(samples)
    errors = answered - found.statuses[200]
    print(
        f"{answered} requests in {options.minutes:g} minutes at {rate:.1f} per second ({100 * options.share:.0f} % of the capacity), "
        f"{errors} errors, p99 {found.quantile(0.99):.0f} ms; memory {slope:+.0f} KB per 10 minutes over the second half; "
        f"{before} open files before, {after} after"
    )
    assert errors == 0 and is_flat(samples[-1][0], slope), "not flat, or errors"


def check_statuses(found):
    """Nothing but answers and refusals that tell when to come back."""
    assert found.statuses[200] and set(found.statuses) <= {200, 429, 503}, found.statuses


def overload(options, folder):
    """At 2 and 10 times the capacity at least 90 % of it is served, and p99 stays within twice that at the capacity. A thousand
    clients at once get answers or refusals, and memory grows by less than 100 MB."""
    # A tower of real size: with the embedded one, refusing hundreds of requests a second is itself a tenth of the work.
    with start(options.binary, folder, "--model", "random:ViT-B-32") as (address, _):
        views = requests(("zero", 8))
        load(address, 4, views, seconds=2)
        capacity = load(address, 16, views, options.seconds).per_second()
        usual = load(address, 64, views, options.seconds, rate=capacity).quantile(0.99)
        for part in [2, 10]:
            found = load(address, 128, views, options.seconds, rate=capacity * part)
            served, p99 = found.per_second() / capacity, found.quantile(0.99)
            print(f"{part} times the capacity of {capacity:.1f} per second: {100 * served:.0f} % served, p99 {p99:.0f} ms")
            check_statuses(found)
            # A full queue of 64 takes 64 / capacity, whatever is sent.
            allowed = max(2 * usual, 2 * 64 / capacity * 1e3)
            assert served >= 0.9 and p99 <= allowed, f"served {served:.2f}, p99 {p99:.0f} ms, allowed {allowed:.0f} ms"
    with start(options.binary, folder) as (address, server):
        single = requests(("zero-shot", 1))
        load(address, 4, single, count=100)
        before = memory(server)
        crowd = load(address, 1000, single, count=10_000)
        grown, p99 = max(memory(server) - before, 0) >> 20, crowd.quantile(0.99)
    print(f"10 000 requests of 1 000 clients: {dict(crowd.statuses)}, {grown} MB grown, p99 {p99:.0f} ms")
    check_statuses(crowd)
    assert grown < 100 and p99 < 30_000, f"grew by {grown} MB, p99 {p99:.0f} ms"
