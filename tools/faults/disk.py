"""Full disks, short memory, weights that change under a server."""

import json
import re
import shutil
import subprocess
import urllib.request

from harness import ROOT, SMALL_TUNE, contents, corpus, expect, expect_same, remove

EVAL = "eval --method stss --data pocket:sketch --limit 30 --views 16 --resume --quiet --out".split()
TUNE = [*SMALL_TUNE, *"--epochs 4 --checkpoint-every 1 --out".split()]


def full_disk(trial):
    """F5: a limit on file sizes stands in for a full disk; then a small file system, where one can be mounted."""
    program = trial.program

    def limited(arguments, out, expected, kilobytes):
        ended = program.end([*arguments, out], limit=f"trap '' XFSZ; ulimit -f {kilobytes}")
        expect(ended.code == 0 or ended.stderr, "failed without a word")
        program.works([*arguments, out])
        expect_same(expected, contents(trial.folder / out), "with space again:")

    for name, arguments in (("tune", TUNE), ("eval", EVAL)):
        program.works([*arguments, f"straight-{name}"])
        expected = contents(trial.folder / f"straight-{name}")
        for size in [1, 2, 4, 8, 16, 64][: trial.count(60)]:
            remove(trial.folder / "cache")
            case = lambda a=arguments, n=name, e=expected, s=size: limited(a, f"{n}-{s}", e, s)  # noqa: E731
            trial.case(f"{name}, files of at most {size} kB", case)
    small = trial.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, text=True)
    if mounted.returncode != 0:
        trial.notes["skipped: small file system,"] = f"not mounted here ({mounted.stderr.strip()})"
        return
    try:
        program.works([*EVAL, "no-cache", "--no-cache"])
        expected = contents(trial.folder / "no-cache")

        def full_cache():
            program.works([*EVAL, "full-cache"], FLATCLIP_CACHE=str(small))
            expect_same(expected, contents(trial.folder / "full-cache"))

        def full_run():
            for entry in small.iterdir():
                remove(entry)
            (small / "filler").write_bytes(bytes(240 << 10))
            ended = program.end([*EVAL, str(small / "run"), "--no-cache"])
            expect(ended.code == 4, f"exit {ended.code}, expected 4 for a full disk: {ended.stderr}")
            (small / "filler").unlink()
            program.works([*EVAL, str(small / "run"), "--no-cache"])
            expect_same(expected, contents(small / "run"), "with space again:")

        trial.case("the cache's file system is full", full_cache)
        trial.case("the run's own file system is full", full_run)
    finally:
        subprocess.run(["umount", small], check=True)


def memory(trial):
    """F17."""
    (trial.folder / "p.png").write_bytes(corpus("png")[0][1])
    for model in ("pocket", "random:ViT-B-32"):
        arguments = f"predict p.png --classes cat,dog --model {model} --precision f32 --threads 2".split()
        first = trial.program.end(arguments, limit="ulimit -v 120000")
        told = re.search(r"(\d+) is more than the limit", first.stderr)
        if not told:  # a model that fits even there tells no estimate
            works = lambda e=first: expect(e.code == 0, f"neither works nor tells numbers: {e.stderr}")  # noqa: E731
            trial.case(f"{model} in 120 MB", works)
            continue
        estimate = int(told[1])
        trial.notes[f"{model} estimate MB"] = estimate >> 20

        def below(part, estimate=estimate, arguments=arguments):
            limit = max(estimate * part // 10, 100 << 20) >> 10
            ended = trial.program.end(arguments, limit=f"ulimit -v {limit}")
            expect(ended.code == 2 and "MB" in ended.stderr, f"exit {ended.code}: {ended.stderr}")

        for part in (8, 5, 3):
            trial.case(f"{model} below the estimate, {part}/10", lambda part=part, below=below: below(part))
        # The program itself and its threads' arenas are mapped before anything is loaded.
        limit = (estimate * 12 // 10 + (256 << 20)) >> 10
        above = lambda a=arguments, limit=limit: trial.program.works(a, limit=f"ulimit -v {limit}")  # noqa: E731
        trial.case(f"{model} above the estimate, 12/10", above)


MODEL = ROOT / "crates/flatclip-pocket/models/pocket"
QUESTION = (("classes", "fish,lamp,snail"), ("method", "stss"), ("views", "8"))


def ask(address, path, body=None):
    request = urllib.request.Request(f"{address}{path}", data=body)
    request.add_header("content-type", "multipart/form-data; boundary=xx")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def form(image):
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in QUESTION] + [b'name="image"; filename="x"\r\n\r\n' + image]
    return b"".join(b"--xx\r\ncontent-disposition: form-data; " + part + b"\r\n" for part in parts) + b"--xx--\r\n"


def replaced(trial):
    """F13: what is done to the weights, and whether a server that starts afterwards must refuse them."""

    def cut(file):
        with open(file, "r+b") as weights:
            weights.truncate(file.stat().st_size // 2)

    def exchanged(file):
        other = file.with_name("other")
        other.write_bytes(corpus("safetensors")[0][1])
        other.rename(file)

    damages = [
        ("cut to nothing", True, lambda file: file.write_bytes(b"")),
        ("cut in the middle", True, cut),
        ("overwritten in place", True, lambda file: file.write_bytes(b"\xa5" * file.stat().st_size)),
        ("exchanged for another model", False, exchanged),
        ("removed with its folder", True, lambda file: remove(file.parent)),
    ]
    model, question = trial.folder / "model", form(corpus("png")[0][1])
    serve = ["serve", "--bind", "127.0.0.1:0", "--offline", "--quiet", "--model", str(model)]

    def answers(address):
        found = json.loads(ask(address, "/v1/classify", question))
        return {key: value for key, value in found.items() if key not in ("timing", "time", "seconds", "ms", "request_id", "id")}

    def run(refuses, damage):
        remove(model)
        shutil.copytree(MODEL, model)
        server = trial.program.start(serve)
        try:
            address = server.stdout.readline().decode().strip().rstrip("/")
            before = answers(address)
            damage(model / "open_clip_model.safetensors")
            for _ in range(5):
                expect(answers(address) == before, "another answer")
                ask(address, "/readyz")
        finally:
            server.terminate()
            code = server.wait(25)
        expect(code == 0, f"the server ended with {code}")
        again = trial.program.start(serve)
        line = again.stdout.readline()
        again.terminate()
        again.communicate(timeout=25)
        expect(not (refuses and line), "a new server took the damaged file")

    for name, refuses, damage in trial.some(damages):
        trial.case(name, lambda refuses=refuses, damage=damage: run(refuses, damage))
