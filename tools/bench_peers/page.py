"""The table, as a page of the documentation."""

import datetime
import os
import re
from pathlib import Path
from statistics import median

NO_TILES = "needs AMX, not on this CPU"
PATHS = ("--venv", "--preload", "--tower", "--photos")


def page(results, options, words, versions, isa):
    """The whole page; `results` has every group with the runs of its sides, or why a side could not run."""
    preloaded = ", with a library preloaded that answers hidden CPUID leaves" if options.preload else ""
    lines = [
        f"# Benchmarks\n\nflatclip and its peers on the same machine in the same run: each side once, and again, {options.repeats} "
        f"times after one that does not count, {options.threads} threads unless a row says one. {options.views} views per image, "
        "random weights of the real shapes. Seconds are medians (fastest in brackets). The ratio is that of the medians (of the "
        "fastest): of the peer's time to ours, so above 1 flatclip is faster, unless a row says otherwise.\n",
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}: `cargo xtask bench-peers {' '.join(without_paths(words))}`. "
        f"{cpu(isa)}. {load()}. Peers: {versions}{preloaded}.\n",
        "| work | flatclip s | other s | ratio | goal |\n|---|---|---|---|---|",
        *(line for group, times in results for line in rows(group, times)),
        "\n| memory | peak RSS, weights included | goal |\n|---|---|---|",
        *(peak(memory, times) for group, times in results for memory in group.memory),
        "\nOurs are cases of `flatclip bench`, the peers' the functions of `tools/peers.py`. torch runs with glibc's allocator "
        'told to keep its memory and to use huge pages, which helps it, unless a row says "as installed".\n',
    ]
    return "\n".join(lines)


def notes_of(page):
    """What people wrote behind the tables of an earlier page: it stays."""
    return page[page.find("\n## Notes") :] if "\n## Notes" in page else ""


def rows(group, times):
    ratios = []
    for row in group.rows:
        sides = [NO_TILES] if times is None else [times[row.under], times[row.over]]
        reason = next((side for side in sides if isinstance(side, str)), None)
        if reason is not None:
            reason = re.sub(r"[|\n]", " ", reason if times is None else f"could not run: {reason}")
            yield f"| {row.title} | | {reason} | | {row.goal.show()} |"
            continue
        of = (lambda run: run["gflop"] / run["seconds"]) if row.rates else (lambda run: run["seconds"])
        (under, best_under), (over, best_over) = (summary(map(of, side), max if row.rates else min) for side in sides)
        shown = "{:.0f} GFLOP/s ({:.0f})" if row.rates else "{:.3f} ({:.3f})"
        ratios.append(over / under)
        cells = [row.title, shown.format(under, best_under), shown.format(over, best_over)]
        cells += [f"{over / under:.2f} ({best_over / best_under:.2f})", row.goal.show(over / under)]
        yield f"| {' | '.join(cells)} |"
    if group.median:
        title, goal = group.median
        found = median(ratios) if ratios else None
        note, ratio = NO_TILES if times is None else "", "" if found is None else f"{found:.2f}"
        yield f"| {title} | | {note} | {ratio} | {goal.show(found)} |"


def summary(values, best):
    values = list(values)
    return median(values), best(values)


def peak(memory, times):
    runs = times[memory.side] if times else []
    peaks = [] if isinstance(runs, str) else [run["peak_rss_mb"] for run in runs if run.get("peak_rss_mb")]
    found = max(peaks) / 1000 if peaks else None
    shown = NO_TILES if found is None else f"{found:.2f} GB"
    missed = " (missed)" if found is not None and found > memory.limit else ""
    return f"| {memory.title} | {shown} | <= {memory.limit:g} GB{missed} |"


def without_paths(words):
    """The options that change numbers; where a virtual environment lies does not."""
    kept, words = [], iter(words)
    for word in words:
        if word in PATHS:
            next(words, None)
        elif not word.startswith(tuple(f"{name}=" for name in PATHS)):
            kept.append(word)
    return kept


def cpu(isa):
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name, family, model = (
        found and found[1] for found in (re.search(rf"^{key}\t*: (.*)$", info, re.M) for key in ("model name", "cpu family", "model"))
    )
    kind = f" (family {family}, model {model})" if family and model else ""
    return f"{name or 'unknown CPU'}{kind}, {os.cpu_count()} cores, kernels for {isa}"


def load():
    """A busy machine distorts measurements: say how busy it was."""
    try:
        return f"Load average at the end {Path('/proc/loadavg').read_text().split()[1]}"
    except OSError:
        return "Load average at the end unknown"
