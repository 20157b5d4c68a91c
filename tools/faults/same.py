"""Results that must not depend on threads, shards, instructions, locale, time zone or clock."""

from harness import contents, expect, expect_same, json_lines, remove

EVAL = "eval --method stss --data pocket:sketch --limit 24 --views 8 --quiet --out".split()


def answers(trial, out):
    """The files whose bytes say what was answered; the configuration of a shard differs from that of the whole."""
    every = contents(trial.folder / out)
    return {name: every[name] for name in ("predictions.jsonl", "summary.json", "classes.txt")}


def shards(trial):
    """F9."""
    program = trial.program
    program.works([*EVAL, "whole"])
    expected = answers(trial, "whole")

    def parts(count):
        return [f"parts-{count}/shard-{index:04}-of-{count:04}" for index in range(count)]

    def merged(count):
        for index in range(count):
            program.works([*EVAL, f"parts-{count}", "--shard", f"{index}/{count}"])
        order = parts(count)[::-1]
        program.works(["report", "merge", *order[1:], order[0], "--out", f"merged-{count}"])
        expect_same(expected, answers(trial, f"merged-{count}"))

    for count in trial.some([3, 2, 7]):
        trial.case(f"{count} shards", lambda count=count: merged(count))
    zero, one, two = parts(3)
    program.works([*EVAL, "foreign", "--seed", "1", "--shard", "1/3"])
    for name, chosen, words in (
        ("a part is missing", [zero, two], "in no part"),
        ("a part is a duplicate", [zero, one, one, two], "overlaps"),
        ("a part of another seed", [zero, "foreign/shard-0001-of-0003", two], "does not belong"),
    ):
        merge = ["report", "merge", *chosen, "--out", "refused"]
        trial.case(name, lambda merge=merge, words=words: program.refuses(merge, words))


def threads(trial):
    """F11."""
    trial.program.works([*EVAL, "first", "--threads", "1", "--no-cache"])
    expected = answers(trial, "first")

    def run(count, cache):
        if cache == "cold":
            remove(trial.folder / "cache")
        out = f"threads-{count}-{cache}"
        trial.program.works([*EVAL, out, "--threads", count, *(["--no-cache"] if cache == "none" else [])])
        expect_same(expected, answers(trial, out))

    for count in trial.some(["3", "8", "1", "2"]):
        for cache in ("none", "cold", "warm"):
            trial.case(f"{count} threads, cache {cache}", lambda count=count, cache=cache: run(count, cache))


def instructions(trial):
    """F12."""

    def answered(out, *more):
        trial.program.works([*EVAL, out, "--precision", "f32", "--no-cache", *more])
        records = json_lines((trial.folder / out / "predictions.jsonl").read_text())
        return [(record["answer"]["prediction"], record["answer"]["confidence"]) for record in records]

    expected = answered("best")

    def run(isa):
        found = answered(isa, "--isa", isa)
        expect([one[0] for one in found] == [one[0] for one in expected] and found, "another class")
        expect(all(abs(a[1] - b[1]) < 1e-3 for a, b in zip(expected, found)), "another confidence")

    for isa in ("plain", "avx2", "avx512"):
        if trial.program.end(["--isa", isa, "version"]).code != 0:
            trial.notes[f"skipped: {isa},"] = "not on this machine"
            continue
        trial.case(isa, lambda isa=isa: run(isa))


def surroundings(trial):
    """F14."""
    trial.program.works([*EVAL, "plain", "--no-cache"])
    expected = answers(trial, "plain")
    settings = [
        ("LC_ALL", "C"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "de_DE.UTF-8"),
        ("LANG", "ar_EG.UTF-8"),
        ("TZ", "Pacific/Kiritimati"),
        ("TZ", "America/Adak"),
        ("TZ", "nonsense"),
        ("SOURCE_DATE_EPOCH", "0"),
    ]

    def run(out, name, value):
        trial.program.works([*EVAL, out, "--no-cache"], **{name: value})
        expect_same(expected, answers(trial, out))

    for number, (name, value) in enumerate(trial.some(settings)):
        trial.case(f"{name}={value}", lambda n=number, name=name, value=value: run(f"around-{n}", name, value))
