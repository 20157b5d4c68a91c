"""Text features of the study: photo, gpt3 and the mean of three prompts, for 1000 and for 16 classes."""

import argparse
import ast
import pathlib

import numpy as np
from safetensors.numpy import load_file, save_file


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def categories(path, wnids):
    """Indices of the ImageNet classes of each category: the lists of WNIDs in the class HumanCategories."""
    index = {wnid: k for k, wnid in enumerate(wnids)}
    body = next(n for n in ast.parse(pathlib.Path(path).read_text()).body if isinstance(n, ast.ClassDef)).body
    lists = {n.targets[0].id: ast.literal_eval(n.value) for n in body if isinstance(n, ast.Assign) and isinstance(n.value, ast.List)}
    found = {name: sorted(index[w] for w in ids if w in index) for name, ids in lists.items()}
    return dict(sorted((name, ids) for name, ids in found.items() if ids))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["banks", "wnids", "categories", "out"]:
        parser.add_argument(name, type=pathlib.Path)
    args = parser.parse_args()
    banks = {name: unit(rows.astype(np.float64)) for name, rows in load_file(args.banks).items()}
    banks["mean"] = unit(sum(banks[name] for name in ["photo", "bare", "gpt3"]))
    groups = categories(args.categories, args.wnids.read_text().split())
    assert len(groups) == 16, f"expected 16 categories, found {len(groups)}"
    args.out.mkdir(parents=True, exist_ok=True)
    for name, rows in banks.items():
        of_groups = unit(np.stack([rows[ids].mean(0) for ids in groups.values()]))
        for count, part in [(1000, rows), (16, of_groups)]:
            save_file({"text_features": part.astype(np.float32)}, args.out / f"{name}-{count}.safetensors")
    (args.out / "classes-16.txt").write_text("\n".join(groups) + "\n")
    (args.out / "classes-1000.txt").write_text("".join(f"class {k}\n" for k in range(1000)))


if __name__ == "__main__":
    main()
