"""What the documents promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_name_in_the_guide_exists() -> None:
    import flatclip

    for page in ["docs/guide/python.md", "docs/guide/cluster.md", "README.md"]:
        for name in set(re.findall(r"\bflatclip\.([A-Za-z_]+)", (ROOT / page).read_text())):
            assert hasattr(flatclip, name) or name in {"ray", "git", "md"}, (page, name)


def test_the_simulation_prints_the_tables_of_the_page() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/python/simulate.py"], capture_output=True, text=True, check=True)
    page = (ROOT / "docs/guide/cluster.md").read_text()
    rows = [line for line in done.stdout.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == 12 and all(row in page for row in rows)


def test_the_manifests_are_sound() -> None:
    for script in ["slurm.sh", "torchrun.sh"]:
        subprocess.run(["bash", "-n", ROOT / "docs/cluster" / script], check=True)
    text = (ROOT / "docs/cluster/kubernetes.yaml").read_text()
    shards = re.search(r"completions: (\d+)", text)
    assert shards and f"auto/{shards.group(1)}" in text and "completionMode: Indexed" in text
