"""Virtual environments with packages that measurements compare with, made on first use; and types of their options."""

import os
import subprocess
import sys
from pathlib import Path


def environment(name, packages, given=None, probe=None):
    """The interpreter of an environment with these packages: the one in the folder `given`, or flatclip-NAME in the user's cache.
    `probe` is a line of Python that works where nothing has to be installed."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(given or Path(cache) / f"flatclip-{name}").absolute()
    python = folder / "bin/python"
    if not python.exists():
        print(f"making {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL).returncode != 0:
        print(f"installing {', '.join(packages)} into {folder} ...", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def positive(text):
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value
