"""Intervals and tests of paired answers: bootstrap over images, exact McNemar, Holm."""

from math import comb

import numpy as np

RESAMPLES, SEED = 10_000, 20261118


def interval(values):
    """Mean of values per image in percent, with its 95 % bootstrap interval."""
    values = np.asarray(values, float)
    draws = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(1), [2.5, 97.5])
    return 100 * values.mean(), 100 * low, 100 * high


def mcnemar(before, after):
    """Images that `after` fixes and breaks, and the exact two-sided p."""
    before, after = np.asarray(before, bool), np.asarray(after, bool)
    fixed, broken = int((~before & after).sum()), int((before & ~after).sum())
    n = fixed + broken
    tail = sum(comb(n, k) for k in range(min(fixed, broken) + 1)) / 2**n
    return fixed, broken, min(1.0, 2 * tail)


def holm(ps):
    """Holm's corrected p, in the given order."""
    order = np.argsort(ps, kind="stable")
    corrected, highest = np.empty(len(ps)), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        corrected[index] = highest
    return corrected


def ece(confidence, right, bins=15):
    """Expected calibration error in percent, right-closed bins of equal width."""
    confidence, right = np.asarray(confidence, float), np.asarray(right, float)
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = [abs(confidence[index == b].sum() - right[index == b].sum()) for b in range(bins)]
    return 100 * sum(gaps) / len(right)


if __name__ == "__main__":
    # Known values: 11 fixed and none broken, 20 and 4; Holm of a textbook example.
    assert abs(mcnemar([0] * 11, [1] * 11)[2] - 2 / 2**11) < 1e-12
    assert abs(mcnemar([0] * 20 + [1] * 4, [1] * 20 + [0] * 4)[2] - 0.0015438795) < 1e-9
    assert np.allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert abs(ece([0.9, 0.9, 0.6, 0.6], [1, 1, 1, 0]) - 10) < 1e-9
    print("ok")
