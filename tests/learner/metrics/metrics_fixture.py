"""Writes random outputs and targets with the values of scikit-learn,
scikit-image and scipy for them.

python metrics_fixture.py FILE [SEED]   the live test: several sets of each
                                        metric and kind
python metrics_fixture.py FILE --short  metrics_fixture.json: one of each

Where they raise an error or return NaN, the value is the one that the metric's
header documents. The same applies where Tern's header documents a different value,
as for the r2_score of constant targets, which is 1 in scikit-learn.

Requires scikit-learn and scikit-image, which ./dev bench peers installs.
"""
import json
import sys
import warnings

import numpy as np
from scipy.stats import pearsonr, spearmanr
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from sklearn import metrics as sk

warnings.filterwarnings("ignore")

NONE_IGNORED = -100
OF_TWO = " of two"  # kinds that differ for two classes
OTHER_KINDS = 0.1  # how often a set also has properties of another kind
SETS_OF_A_KIND = 4  # in the short form only for a few metrics
SEED = 10


# ---- Outputs and targets ----


def chooser(rng, kind):
    return lambda name: kind == name or rng.random() < OTHER_KINDS


def with_nan(rng, x):
    x.flat[rng.integers(x.size)] = np.nan
    return x


def classes(rng, kind, rows, counts=(2, 5), ranked=False):
    """Returns scores [n, c] or [n, c, h, w] (for two classes also logits [n] or
    [n, 1]), targets, and the class that the loss ignores.

    ranked: tied samples share all their scores, so that their softmax values are
    equal. The scores of one sample all differ, since the order of equal scores is
    undefined.
    """
    count = int(rng.integers(counts[0], counts[1] + 1))
    if kind.endswith(OF_TWO):
        kind, count = kind.removesuffix(OF_TWO), counts[0]
    has = chooser(rng, kind)
    places = (2, 3) if rng.random() < 0.2 else ()
    n = int(rng.integers(1, (4 if places else rows) + 1))
    targets = rng.integers(0, count, (n, *places))
    if count == 2 and rng.random() < 0.6:
        scores = rng.normal(size=targets.shape).round(0 if has("ties") else 3)
        outputs = scores
        if rng.random() < 0.5:
            outputs = scores.reshape((n, 1, *places))
    else:
        scores = rng.normal(size=(n, *places, count))
        if has("ties"):
            pool = rng.normal(size=(3, count))
            scores = pool[rng.integers(3, size=targets.shape)]
            if not ranked:
                scores = scores.round(int(rng.integers(2)))
        elif not ranked:
            scores = scores.round(3)
        outputs = np.moveaxis(scores, -1, 1)

    def favor(of, by):
        if outputs.size == targets.size:
            scores[...] += by if of else -by
        else:
            scores[..., of] += by

    if has("absent"):
        order = rng.permutation(count)
        some = order[: rng.integers(1, count)]
        targets = rng.choice(some, targets.shape)
        favor(order[-1] if rng.random() < 0.6 else rng.integers(count), -9)
    if has("single"):
        targets[...] = rng.integers(count)
        if rng.random() < 0.5:
            favor(rng.integers(count), 9)
    if has("void"):
        share = 1 if rng.random() < 0.1 else 0.3
        void = rng.choice([-100, -1, count, 255], targets.shape)
        targets = np.where(rng.random(targets.shape) < share, void, targets)
    ignored = NONE_IGNORED
    if has("ignored"):
        ignored = int(rng.choice([*range(count), 255]))
    if kind == "nan":
        with_nan(rng, outputs)
    return outputs, targets, ignored


def labels(rng, kind, rows, probabilities=False):
    """Returns logits or probabilities, and labels, both [n, l]."""
    has = chooser(rng, kind)
    shape = int(rng.integers(1, rows + 1)), int(rng.integers(1, 6))
    scores = rng.normal(size=shape)
    if probabilities:
        scores = rng.random(shape)
    scores = scores.round(1 if has("ties") else 3)
    targets = rng.integers(0, 2, shape).astype(float)
    for name, constant in ("absent", 0), ("single", 1):
        if has(name):
            targets[:, rng.random(shape[1]) < 0.5] = constant
            targets[:, rng.integers(shape[1])] = constant
    if has("soft"):
        targets = np.where(targets > 0, 0.6, 0.4) + rng.choice(
            [-0.1, 0, 0.1], shape)
        targets = targets.round(1)  # 0.5 is not above 0.5
    if has("unknown"):
        share = 1 if rng.random() < 0.1 else 0.3
        unknown = rng.choice([-1, np.nan, 255, -0.1, 1.1], shape)
        targets = np.where(rng.random(shape) < share, unknown, targets)
        if rng.random() < 0.3:
            targets[:, rng.integers(shape[1])] = -1
    if kind == "nan":
        with_nan(rng, scores)
    if shape[1] == 1 and rng.random() < 0.5:
        targets = targets[:, 0]
    return scores, targets, NONE_IGNORED


def numbers(rng, kind, rows):
    """Returns both as [n] or [n, k]; for k = 1 the targets may be [n]."""
    has = chooser(rng, kind)
    n, k = int(rng.integers(1, rows + 1)), int(rng.integers(1, 4))
    decimals = 0 if has("ties") else 3
    offset = np.round(rng.normal() * 100, decimals)
    targets = rng.normal(size=(n, k)).round(decimals) + offset
    outputs = targets + (rng.normal(size=(n, k)) * 0.5).round(decimals)
    for name, array in ("constant", targets), ("constant outputs", outputs):
        if has(name):
            some = rng.random(k) < 0.5
            some[rng.integers(k)] = True
            array[:, some] = np.round(rng.normal() * 10, decimals)
            if rng.random() < 0.2:
                array[:, some] = outputs[:1, some]
    if kind == "nan":
        with_nan(rng, outputs)
    if k == 1 and rng.random() < 0.7:
        targets = targets[:, 0]
        if rng.random() < 0.5:
            outputs = outputs[:, 0]
    return outputs.round(3), targets.round(3), NONE_IGNORED


def images(rng, kind, rows, least=1, data_range=1):
    has = chooser(rng, kind)
    shape = (
        int(rng.integers(1, 4)),
        int(rng.choice([1, 3])),
        int(rng.integers(least, least + 3)),
        int(rng.integers(least, least + 3)),
    )
    targets = rng.random(shape)
    outputs = np.clip(targets + rng.normal(size=shape) * 0.1, 0, 1)
    for name, array in ("flat", targets), ("flat outputs", outputs):
        if has(name):
            array[rng.integers(shape[0])] = rng.random()
    if has("exact"):
        one = rng.integers(shape[0])
        outputs[one] = targets[one]
    outputs, targets = (
        (data_range * array).round(0 if data_range > 1 else 2)
        for array in (outputs, targets)
    )
    if kind == "nan":
        with_nan(rng, outputs)
    return outputs, targets, NONE_IGNORED


KINDS = {
    classes: [
        "plain", "plain", "ties", "absent", "single", "single of two", "void",
        "ignored", "ignored of two", "nan",
    ],
    labels: ["plain", "ties", "absent", "single", "unknown", "soft", "nan"],
    numbers: ["plain", "ties", "constant", "constant outputs", "nan"],
    images: ["plain", "flat", "exact", "nan"],
}


# ---- Values of classes ----


class Rows:
    """The counted samples or pixels: their target is a class of the model, but not
    the ignored one."""

    def __init__(self, x, y, ignored):
        self.is_binary = x.size == y.size  # logits
        count = 2 if self.is_binary else x.shape[1]
        scores = x.reshape(-1, 1)
        if not self.is_binary:
            scores = np.moveaxis(x, 1, -1).reshape(-1, count)
        y = y.ravel()
        counted = (y >= 0) & (y < count) & (y != ignored)
        self.count, self.scores, self.y = count, scores[counted], y[counted]
        self.pred = self.scores.argmax(1)
        if self.is_binary:
            self.pred = (self.scores[:, 0] > 0).astype(int)
        self.labels = np.setdiff1d(np.arange(count), [ignored])
        self.present = np.intersect1d(self.labels, [*self.y, *self.pred])
        self.both_of_two = len(self.labels) == count == 2


def of_rows(value, of_none):
    """of_none: the value without any rows, which scikit-learn rejects."""

    def of(x, y, ignored):
        rows = Rows(x, y, ignored)
        return value(rows) if len(rows.y) else of_none

    return of


def of_classes(function, of_none, takes_labels=False, **options):
    def value(rows):
        labels = {"labels": np.arange(rows.count)} if takes_labels else {}
        return function(rows.y, rows.pred, **labels, **options)

    return of_rows(value, of_none)


def averaged(function, average, only_present=False, of_none=0, **options):
    def value(rows):
        kind = average
        if average == "automatic":
            kind = "binary" if rows.both_of_two else "macro"
        known = rows.present if only_present else rows.labels
        return function(
            rows.y,
            rows.pred,
            labels=None if kind == "binary" else known,
            average=kind,
            zero_division=of_none,
            **options,
        )

    return of_rows(value, of_none)


def top(k):
    return of_rows(
        lambda rows: sk.top_k_accuracy_score(
            rows.y, rows.scores, k=k, labels=np.arange(rows.count)),
        np.nan,
    )


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def auc(y, x):
    return sk.roc_auc_score(y, x) if 0 < y.sum() < len(y) else np.nan


def average_precision(y, x):
    return sk.average_precision_score(y, x) if y.any() else 0


def mean_of_classes(function, of_none):
    def value(rows):
        if rows.is_binary:
            return function(rows.y == 1, rows.scores[:, 0])
        scores = softmax(rows.scores)
        asked = [1] if rows.count == 2 else rows.labels
        return np.nanmean([function(rows.y == c, scores[:, c]) for c in asked])

    return of_rows(value, of_none)


# ---- Values of labels ----


def known_labels(x, y):
    """Returns which labels are present, and which are known."""
    y = y.reshape(x.shape)
    return y > 0.5, (y >= 0) & (y <= 1)


def is_called(x, threshold, probabilities):
    return x > (
        threshold if probabilities else np.log(threshold / (1 - threshold)))


def of_labels(function, average, threshold=0.5, probabilities=False, **options):
    """scikit-learn has no unknown labels. So if there are any, the value is computed
    per label (micro: jointly) over the samples whose label is known."""

    def value(x, y, ignored):
        true, known = known_labels(x, y)
        pred = is_called(x, threshold, probabilities)

        def of(true, pred, average="binary"):
            if not true.size:
                return 0
            return function(
                true, pred, average=average, zero_division=0, **options)

        if known.all() and x.shape[1] > 1:
            return of(true, pred, average)
        if average == "micro":
            return of(true[known], pred[known])
        values = [of(t[k], p[k]) for t, p, k in zip(true.T, pred.T, known.T)]
        if average == "macro":
            return np.mean(values)
        support = (true & known).sum(0)
        return np.average(values, weights=support) if support.any() else 0

    return value


def of_predictions(function, threshold=0.5, probabilities=False):
    def value(x, y, ignored):
        true, known = known_labels(x, y)
        pred = is_called(x, threshold, probabilities)
        return function(true[known], pred[known]) if known.any() else np.nan

    return value


def mean_of_labels(function):
    def value(x, y, ignored):
        true, known = known_labels(x, y)
        return np.nanmean(
            [function(t[k], s[k]) for t, s, k in zip(true.T, x.T, known.T)])

    return value


# ---- Values of numbers and images ----


def of_numbers(function):
    return lambda x, y, ignored: function(y.ravel(), x.ravel())


def of_columns(function, constant_outputs_too=False):
    """NaN if a column of the targets is constant; scikit-learn returns 0 or 1
    there."""

    def value(x, y, ignored):
        x = x.reshape(len(x), -1)
        y = y.reshape(x.shape)
        varies = np.ptp(y, axis=0) > 0
        if constant_outputs_too:
            varies &= np.ptp(x, axis=0) > 0
        return function(y, x) if varies.all() else np.nan

    return value


# of_columns makes sure of at least two samples.
def pearson(y, x):
    return np.mean([pearsonr(a, b).statistic for a, b in zip(x.T, y.T)])


def spearman(y, x):
    return spearmanr(x, y).statistic if len(x) > 1 else np.nan


def per_image(function, **options):
    return lambda x, y, ignored: np.mean(
        [function(b, a, **options) for a, b in zip(x, y)])


SSIM = dict(
    channel_axis=0,
    gaussian_weights=True,
    sigma=1.5,
    use_sample_covariance=False,
)


# ---- All metrics: their inputs and their values ----


def all_metrics():
    """Uses the names in parity_test.cpp."""
    many = (classes, dict(counts=(3, 5), ranked=True))
    two = (classes, dict(counts=(2, 2)))
    ranked = (classes, dict(ranked=True))
    probabilities = (labels, dict(probabilities=True))
    result = {
        "accuracy": (classes, of_classes(sk.accuracy_score, np.nan)),
        "error_rate": (classes, of_classes(sk.zero_one_loss, np.nan)),
        "dice": (
            classes,
            averaged(sk.f1_score, "automatic", only_present=True, of_none=1)),
        "f_beta 0.5": (
            classes, averaged(sk.fbeta_score, "automatic", beta=0.5)),
        "matthews_corrcoef": (classes, of_classes(sk.matthews_corrcoef, 0)),
        "roc_auc": (ranked, mean_of_classes(auc, np.nan)),
        "average_precision": (ranked, mean_of_classes(average_precision, 0)),
        "roc_auc_multi": (labels, mean_of_labels(auc)),
        "average_precision_multi": (labels, mean_of_labels(average_precision)),
        "accuracy_multi": (labels, of_predictions(sk.accuracy_score)),
        "accuracy_multi 0.3": (labels, of_predictions(sk.accuracy_score, 0.3)),
        "hamming_loss_multi": (labels, of_predictions(sk.hamming_loss)),
        "hamming_loss_multi of probabilities 0.7": (
            probabilities, of_predictions(sk.hamming_loss, 0.7, True)),
        "f1_multi of probabilities 0.7": (
            probabilities, of_labels(sk.f1_score, "macro", 0.7, True)),
        "mse": (numbers, of_numbers(sk.mean_squared_error)),
        "mae": (numbers, of_numbers(sk.mean_absolute_error)),
        "rmse": (numbers, of_numbers(sk.root_mean_squared_error)),
        "r2_score": (numbers, of_columns(sk.r2_score)),
        "explained_variance": (
            numbers, of_columns(sk.explained_variance_score)),
        "pearson_corrcoef": (
            numbers, of_columns(pearson, constant_outputs_too=True)),
        "spearman_corrcoef": (numbers, of_numbers(spearman)),
    }
    for k in 1, 2, 3:
        result[f"top_{k}_accuracy"] = (many, top(k))
    for weights in None, "linear", "quadratic":
        result[f"cohen_kappa {weights or 'none'}"] = (
            classes,
            of_classes(
                sk.cohen_kappa_score,
                np.nan,
                takes_labels=True,
                weights=weights,
            ),
        )
    for average in "automatic", "binary", "macro", "micro", "weighted":
        for name, function, options in (
            ("precision", sk.precision_score, {}),
            ("recall", sk.recall_score, {}),
            ("f_beta", sk.fbeta_score, {"beta": 2}),
            ("f1", sk.f1_score, {}),
            ("jaccard", sk.jaccard_score, {}),
        ):
            result[f"{name} {average}"] = (
                two if average == "binary" else classes,
                averaged(
                    function,
                    average,
                    only_present=name == "jaccard",
                    **options,
                ),
            )
            if average not in ("automatic", "binary"):
                result[f"{name}_multi {average}"] = (
                    labels, of_labels(function, average, **options))
    for data_range in 1, 255:
        result[f"psnr {data_range}"] = (
            (images, dict(data_range=data_range)),
            per_image(peak_signal_noise_ratio, data_range=data_range))
        result[f"ssim {data_range}"] = (
            (images, dict(data_range=data_range, least=11)),
            per_image(structural_similarity, data_range=data_range, **SSIM))
    return result


# ---- The file ----


def listed(array):
    """Writes NaN and infinity as strings, which JSON lacks as numbers."""
    return [a if np.isfinite(a) else str(a) for a in array.ravel().tolist()]


def drawn(seed, is_short):
    rng = np.random.default_rng(seed)
    for name, (makes, value) in all_metrics().items():
        make, options = makes if isinstance(makes, tuple) else (makes, {})
        sets = SETS_OF_A_KIND
        if is_short and make is not numbers and name != "dice":
            sets = 1
        for kind in KINDS[make] * sets:
            outputs, targets, ignored = make(
                rng, kind, rows=11 if is_short else 60, **options)
            expected = np.array(np.nan)  # NaN if an output is NaN
            if not np.isnan(outputs).any():
                expected = np.array(float(value(outputs, targets, ignored)))
            yield {
                "metric": name,
                "kind": kind,
                "outputs": listed(outputs),
                "shape": list(outputs.shape),
                "targets": listed(targets),
                "target_shape": list(targets.shape),
                "ignore_index": ignored,
                "expected": listed(expected)[0],
            }


def main():
    file, option = (*sys.argv[1:], SEED)[:2]
    is_short = option == "--short"
    sets = list(drawn(SEED if is_short else int(option), is_short))
    with open(file, "w") as out:
        json.dump(sets, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
