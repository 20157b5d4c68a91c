"""What a new user waits for: the build of the command line, and a program's start to its first answer."""

import subprocess
import tempfile
import time
from pathlib import Path

# Starts that count; the first fills the page cache.
STARTS = 3


def rows(root, binary, folder):
    """A table of both."""
    checkpoint = Path(folder) / "vit-b16.safetensors"
    seconds_of([binary, "convert", "random:ViT-B-16", "--quiet", checkpoint], folder)
    predict = [binary, "predict", "--quiet", "--classes", "cat,dog,fish", "--model", checkpoint, "photo.jpg"]
    first, *others = [seconds_of(predict, folder) for _ in range(STARTS + 1)]
    with tempfile.TemporaryDirectory() as target:
        build = ["cargo", "build", "--release", "--quiet", "-p", "flatclip-cli", "--target-dir", target]
        built = seconds_of(build, root)
    return (
        "\n| start | s |\n|---|---|\n"
        "| ViT-B/16 checkpoint of 600 MB in f32, from the start of the program to its first answer "
        f"| {first:.2f}, then {min(others):.2f} |\n"
        f"| clean `cargo build --release -p flatclip-cli`, crates already downloaded | {built:.0f} |\n"
    )


def seconds_of(command, folder):
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
