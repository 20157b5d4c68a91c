"""What any-time views save and what they cost, certainty by certainty, against a run with all views; on held-out images of an
embedded model, or on real photos without a text tower.

    python3 tools/studies/any_time.py [--model pocket] [--domains photo,sketch,hard] [--limit 200] [--methods stss]
    python3 tools/studies/any_time.py --model TOWER_DIR --data imagenet --data-root DIR --text-features FILE --methods zero,vte,mta

Views are random, so the row to compare agreement with is that of two full runs with different seeds. Features of all views are
in the feature cache: every certainty, and a second call, encodes nothing.
"""

import argparse
import pathlib
import tempfile

from runs import build, evaluate, records

VIEWS = 64  # the most of `--views auto`


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--methods", default="stss")
    parser.add_argument("--domains", default="photo,sketch,hard", help="of the pocket dataset")
    parser.add_argument("--data", help="instead of the pocket dataset")
    parser.add_argument("--data-root")
    parser.add_argument("--text-features", help="class embeddings, for a model without a text tower")
    parser.add_argument("--limit", type=int, default=200, help="images of each domain, or of the data set")
    parser.add_argument("--one-seed", action="store_true", help="no second full run, which costs as much as the first")
    parser.add_argument("--certainties", default="0.7,0.75,0.8,0.85,0.88,0.9,0.92,0.95,0.98")
    parser.add_argument("--binary", help="instead of building it")
    chosen = parser.parse_args()
    binary = chosen.binary or build()
    data = [chosen.data] if chosen.data else [f"pocket:{name}:validation:{chosen.limit}" for name in chosen.domains.split(",")]
    common = ["--model", chosen.model, "--max-errors", "0", "--split", "test" if chosen.data else "val"]
    for flag, value in (("--data-root", chosen.data_root), ("--text-features", chosen.text_features)):
        common += [flag, value] if value else []
    common += ["--limit", chosen.limit] if chosen.data else []

    def answers(method, seed, *views):
        """Prediction, right or wrong, and views encoded of every image."""
        with tempfile.TemporaryDirectory() as folder:
            out = [evaluate(binary, pathlib.Path(folder) / str(place), "--data", one, "--method", method, "--seed", seed, *views, *common)
                   for place, one in enumerate(data)]  # fmt: skip
            found = [record for run in out for record in records(run)]
        return [(r["answer"]["prediction"], r["answer"]["prediction"] == r["label"], r["answer"].get("views") or VIEWS) for r in found]

    for method in chosen.methods.split(","):
        full = answers(method, 0, "--views", VIEWS)
        right = lambda found: 100 * sum(one[1] for one in found) / len(found)  # noqa: E731
        print(f"\n{method}, {len(full)} images, {VIEWS} views: {right(full):.1f} % right\n")
        print("| certainty | right, points | agreement, % | views encoded, share |\n|---|---|---|---|")
        tried = [] if chosen.one_seed else [("all views, another seed", 1, ["--views", VIEWS])]
        tried += [(p, 0, ["--views", "auto", "--certainty", p]) for p in chosen.certainties.split(",")]
        for name, seed, views in tried:
            found = answers(method, seed, *views)
            same = 100 * sum(a[0] == b[0] for a, b in zip(full, found)) / len(full)
            cost = sum(one[2] for one in found) / sum(one[2] for one in full)
            print(f"| {name} | {right(found) - right(full):+.1f} | {same:.1f} | {cost:.2f} |", flush=True)


if __name__ == "__main__":
    main()
