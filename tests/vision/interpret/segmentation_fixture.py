"""Writes random masks, and scikit-learn's scores of each class.

python segmentation_fixture.py FILE          1,000 sets, for the live test
python segmentation_fixture.py FILE --short  segmentation_fixture.json: a few

Needs scikit-learn, which ./dev bench peers installs.
"""
import json
import sys
import warnings

import numpy as np
from sklearn import metrics as sk

warnings.filterwarnings("ignore")


def of_each_class(function, actual, preds, present):
    values = function(
        actual, preds, labels=np.arange(len(present)), average=None,
        zero_division=0)
    return [float(v) if p else None for v, p in zip(values, present)]


def masks(rng):
    """Returns masks of a few samples; not every class must occur."""
    count = int(rng.integers(2, 7))
    shape = [int(rng.integers(1, 6)), *map(int, rng.integers(1, 9, 2))]
    actual = rng.integers(0, count, shape)
    preds = np.where(
        rng.random(shape) < 0.6, actual, rng.integers(0, count, shape))
    y, x = actual.ravel(), preds.ravel()
    is_actual = np.bincount(y, minlength=count) > 0
    is_either = is_actual | (np.bincount(x, minlength=count) > 0)
    return {
        "classes": count,
        "shape": shape,
        "actual": y.tolist(),
        "preds": x.tolist(),
        "accuracy": of_each_class(sk.recall_score, y, x, is_actual),
        "dice": of_each_class(sk.f1_score, y, x, is_either),
        "iou": of_each_class(sk.jaccard_score, y, x, is_either),
    }


def main():
    rng = np.random.default_rng(7)
    count = 12 if "--short" in sys.argv else 1000
    with open(sys.argv[1], "w") as file:
        json.dump(
            [masks(rng) for _ in range(count)], file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
