"""Writes random outputs and targets, and what scikit-learn, scikit-image and
scipy make of them.

python metrics_fixture.py FILE          1,000 sets: the live test
python metrics_fixture.py FILE --short  metrics_fixture.json: some of them

It needs scikit-learn and scikit-image, which ./dev bench peers installs.
"""
import json
import sys
import warnings

import numpy as np
from scipy.stats import pearsonr, spearmanr
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn import metrics as sk

warnings.filterwarnings("ignore")


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def classes(rng, count=None):
    """Logits [n, c], not all of whose classes need come up, and targets."""
    n, c = int(rng.integers(5, 60)), count or int(rng.integers(2, 6))
    return rng.normal(size=(n, c)), rng.integers(0, c, n)


def labels(rng):
    """Logits and labels [n, l]; rounded, so that some scores are equal."""
    n, count = int(rng.integers(5, 60)), int(rng.integers(2, 6))
    return rng.normal(size=(n, count)).round(1), rng.integers(0, 2, (n, count))


def numbers(rng):
    shape = int(rng.integers(5, 60)), int(rng.integers(1, 4))
    target = rng.normal(size=shape) + rng.normal() * 100
    return target + rng.normal(size=shape) * 0.5, target


def images(rng):
    shape = (
        int(rng.integers(1, 4)),
        int(rng.choice([1, 3])),
        int(rng.integers(11, 20)),
        int(rng.integers(11, 20)),
    )
    target = rng.random(shape)
    return np.clip(target + rng.normal(size=shape) * 0.1, 0, 1), target


def of_classes(function, **options):
    def value(x, y):
        count = x.shape[1]
        known = {} if function is sk.matthews_corrcoef else {
            "labels": np.arange(count)
        }
        return function(y, x.argmax(1), **known, **options)

    return value


def averaged(function, average, only_present=False, **options):
    def value(x, y):
        kind = average
        if average == "automatic":
            kind = "binary" if x.shape[1] == 2 else "macro"
        known = np.arange(x.shape[1])
        if only_present or function is sk.jaccard_score:
            known = np.union1d(y, x.argmax(1))
        if kind == "binary":
            known = None
        return function(
            y, x.argmax(1), labels=known, average=kind, zero_division=0,
            **options,
        )

    return value


def of_labels(function, average, **options):
    return lambda x, y: function(
        y, x > 0, average=average, zero_division=0, **options
    )


def mean_of_defined(function):
    def value(x, y):
        if y.shape[1:] == () and x.shape[1] == 2:
            x, y = softmax(x)[:, 1:], y[:, None]
        elif y.ndim == 1:
            x, y = softmax(x), y[:, None] == np.arange(x.shape[1])
        values = [function(y[:, i], x[:, i]) for i in range(x.shape[1])]
        return np.nanmean(values)

    return value


def auc(y, x):
    return sk.roc_auc_score(y, x) if 0 < y.sum() < len(y) else np.nan


def per_image(function):
    return lambda x, y: np.mean([function(a, b) for a, b in zip(x, y)])


def ssim(x, y):
    return structural_similarity(
        y, x, data_range=1, channel_axis=0, gaussian_weights=True, sigma=1.5,
        use_sample_covariance=False,
    )


METRICS = {
    "precision": (classes, averaged(sk.precision_score, "automatic")),
    "precision weighted": (classes, averaged(sk.precision_score, "weighted")),
    "recall macro": (classes, averaged(sk.recall_score, "macro")),
    "f_beta micro": (classes, averaged(sk.fbeta_score, "micro", beta=2)),
    "f1": (classes, averaged(sk.f1_score, "automatic")),
    "jaccard": (classes, averaged(sk.jaccard_score, "automatic")),
    "jaccard macro": (classes, averaged(sk.jaccard_score, "macro")),
    "jaccard micro": (classes, averaged(sk.jaccard_score, "micro")),
    "cohen_kappa": (classes, of_classes(sk.cohen_kappa_score)),
    "cohen_kappa linear": (
        classes, of_classes(sk.cohen_kappa_score, weights="linear")),
    "cohen_kappa quadratic": (
        classes, of_classes(sk.cohen_kappa_score, weights="quadratic")),
    "matthews_corrcoef": (classes, of_classes(sk.matthews_corrcoef)),
    "roc_auc": (classes, mean_of_defined(auc)),
    "average_precision": (
        classes, mean_of_defined(sk.average_precision_score)),
    "roc_auc_multi": (labels, mean_of_defined(auc)),
    "average_precision_multi": (
        labels, mean_of_defined(sk.average_precision_score)),
    "hamming_loss_multi": (labels, lambda x, y: sk.hamming_loss(y, x > 0)),
    "precision_multi": (labels, of_labels(sk.precision_score, "macro")),
    "recall_multi micro": (labels, of_labels(sk.recall_score, "micro")),
    "f_beta_multi weighted": (
        labels, of_labels(sk.fbeta_score, "weighted", beta=2)),
    "f1_multi": (labels, of_labels(sk.f1_score, "macro")),
    "jaccard_multi": (labels, of_labels(sk.jaccard_score, "macro")),
    "jaccard_multi micro": (labels, of_labels(sk.jaccard_score, "micro")),
    "mse": (numbers, lambda x, y: sk.mean_squared_error(y, x)),
    "mae": (numbers, lambda x, y: sk.mean_absolute_error(y, x)),
    "rmse": (
        numbers, lambda x, y: sk.root_mean_squared_error(y.ravel(), x.ravel())),
    "r2_score": (numbers, lambda x, y: sk.r2_score(y, x)),
    "explained_variance": (
        numbers, lambda x, y: sk.explained_variance_score(y, x)),
    "pearson_corrcoef": (
        numbers,
        lambda x, y: np.mean(
            [pearsonr(a, b).statistic for a, b in zip(x.T, y.T)])),
    "spearman_corrcoef": (
        numbers, lambda x, y: spearmanr(x.ravel(), y.ravel()).statistic),
    "psnr": (
        images,
        per_image(lambda x, y: peak_signal_noise_ratio(y, x, data_range=1))),
    "ssim": (images, per_image(ssim)),
    "dice": (classes, averaged(sk.f1_score, "automatic", only_present=True)),
}


def sets(count):
    rng = np.random.default_rng(7)
    for i in range(count):
        name = list(METRICS)[i % len(METRICS)]
        make, value = METRICS[name]
        outputs, targets = make(rng)
        expected = float(value(outputs, targets))
        yield {
            "metric": name,
            "outputs": outputs.ravel().tolist(),
            "shape": list(outputs.shape),
            "targets": targets.ravel().tolist(),
            "target_shape": list(targets.shape),
            "expected": None if np.isnan(expected) else expected,
        }


def main():
    count = len(METRICS) if "--short" in sys.argv else 1000
    with open(sys.argv[1], "w") as file:
        json.dump(list(sets(count)), file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
