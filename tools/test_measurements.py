"""Tests of what measures: `python3 -m unittest discover tools`, as part of `cargo xtask test`."""

import sys
import unittest
from pathlib import Path

TOOLS = Path(__file__).parent
sys.path[1:1] = [str(TOOLS / folder) for folder in ["bench_peers", "serving", "checks"]]
from groups import GROUPS, Goal, Ours, Peer  # noqa: E402
from page import notes_of, without_paths  # noqa: E402
from soak import is_flat, slope_kb  # noqa: E402

PEERS = (TOOLS / "peers.py").read_text()


def is_work_of_peers(name):
    """Written out as a key of the script's table, or a product of a kind and a shape that it makes keys of."""
    if f'"{name}": ' in PEERS:
        return True
    kind, _, shape = name.removeprefix("gemm-").partition("-")
    k, _, n = shape.partition("x")
    return name.startswith("gemm-") and f'"{kind}": torch.' in PEERS and f"({k}, {n})" in PEERS


class Groups(unittest.TestCase):
    def test_every_row_points_at_sides_of_its_group_and_every_peer_is_known(self):
        for group in GROUPS:
            for row in group.rows:
                self.assertTrue(0 <= row.over < len(group.sides), row.title)
                self.assertIsInstance(group.sides[row.under], Ours, row.title)
            for memory in group.memory:
                self.assertIsInstance(group.sides[memory.side], Ours, memory.title)
            for side in group.sides:
                self.assertTrue(isinstance(side, Ours) or is_work_of_peers(side.name), side)

    def test_an_unknown_peer_is_noticed(self):
        for name in ["gemm-f16-768x3072", "gemm-f32-769x3072", "tpt-10", "gemm-f32"]:
            self.assertFalse(is_work_of_peers(name), name)

    def test_shapes_are_asked_for_by_their_place(self):
        self.assertEqual([side.skip for side in GROUPS[1].sides], [4, 0, 5, 1, 6, 2, 7, 3])
        self.assertEqual(GROUPS[0].sides[3], Peer("gemm-f32-3072x768"))


class Page(unittest.TestCase):
    def test_a_missed_goal_is_marked_and_paths_stay_out_of_the_page(self):
        self.assertEqual(Goal(least=1.5).show(1.4), ">= 1.5 (missed)")
        self.assertEqual(Goal(most=1.03).show(1.01), "<= 1.03")
        self.assertEqual((Goal().show(1.0), Goal(least=40).show()), ("", ">= 40"))
        words = ["--venv", "/somewhere", "--quick", "--preload=/x.so", "--write"]
        self.assertEqual(without_paths(words), ["--quick", "--write"])
        self.assertEqual(notes_of("# A\n\nold table\n\n## Notes\n\nkept\n"), "\n## Notes\n\nkept\n")


class Soak(unittest.TestCase):
    def test_a_slope_is_kilobytes_in_ten_minutes(self):
        self.assertAlmostEqual(slope_kb([(t, 1000 + 1024 * t) for t in range(10)]), 600)

    def test_a_short_soak_may_grow_by_its_noise_and_a_long_one_may_not(self):
        self.assertTrue(is_flat(120, 3374) and is_flat(1800, 1000))
        self.assertFalse(is_flat(120, 30_000) or is_flat(1800, 1100))


if __name__ == "__main__":
    unittest.main()
