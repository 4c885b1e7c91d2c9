"""Writes random detections and objects with pycocotools' values for them.

python mean_average_precision_fixture.py FILE [SEED]   the live test: 300 sets
python mean_average_precision_fixture.py FILE --short  one set of each kind:
                                          mean_average_precision_fixture.json

Coordinates are multiples of 1/4, so that pycocotools' widths and Tern's edges
agree exactly. Where pycocotools returns -1, for a mean over nothing, the value is
null.

Requires pycocotools, which ./dev bench peers installs.
"""
import contextlib
import io
import json
import sys

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

KINDS = [
    "plain", "ties", "crowds", "areas", "limits", "empty images",
    "detections only", "absent classes", "no detections", "many", "few values",
]
OTHER_KINDS = 0.15  # how often a set also has properties of another kind
SETS = 300
SHORT_IMAGES, IMAGES = 3, 8  # at most
SEED = 1


def boxes_of(rng, count, sizes):
    """Returns [count, 4]: left, top, right and bottom edges."""
    size = rng.choice(sizes, (count, 2)) * rng.uniform(0.6, 1.4, (count, 2))
    corner = rng.uniform(0, 200, (count, 2))
    edges = np.concatenate([corner, corner + np.maximum(size, 1)], 1)
    return np.round(edges * 4) / 4


def objects_of(rng, has, classes):
    """Returns boxes, labels, areas and crowd flags of one image."""
    count = int(rng.integers(0, 7))
    if has("detections only") and rng.random() < 0.5:
        count = 0
    boxes = boxes_of(rng, count, [8, 24, 60, 150])
    if has("limits"):  # boxes exactly at the limits of COCO's size classes
        sides = rng.choice([32, 96], count)
        boxes[:, 2:] = boxes[:, :2] + sides[:, None]
    if has("few values"):
        boxes = np.round(boxes / 32) * 32
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 32)
    labels = rng.integers(0, classes, count)
    if has("absent classes"):
        labels[labels == 0] = classes - 1
    width, height = (boxes[:, 2:] - boxes[:, :2]).T
    areas = width * height
    if has("areas"):
        areas = np.round(areas * rng.uniform(0.2, 1, count) * 4) / 4
        areas = np.where(rng.random(count) < 0.2, rng.choice([1024., 9216.]), areas)
    crowds = rng.random(count) < (0.3 if has("crowds") else 0)
    areas = np.where(crowds, width * height, areas)
    return boxes, labels, areas, crowds


def detections_of(rng, has, classes, objects):
    """Returns boxes, labels and scores: slightly moved objects, and others."""
    boxes, labels, _, _ = objects
    near = rng.integers(0, len(labels), rng.integers(0, 12)) if len(labels) else []
    moved = boxes[near] + rng.choice([0, 0, 0, 1, 3, 8], (len(near), 4)) * (
        rng.choice([-0.25, 0.25, 1], (len(near), 4)))
    moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 0.25)
    others = int(rng.integers(0, 5))
    if has("many"):
        others = int(rng.integers(90, 260))
    found = np.concatenate([moved, boxes_of(rng, others, [8, 24, 60, 150])])
    guessed = np.concatenate([labels[near], rng.integers(0, classes, others)])
    wrong = rng.random(len(guessed)) < 0.15
    guessed = np.where(wrong, rng.integers(0, classes, len(guessed)), guessed)
    if has("many"):
        guessed = np.where(rng.random(len(guessed)) < 0.7, 0, guessed)
    scores = rng.random(len(guessed)).round(1 if has("ties") else 4)
    order = rng.permutation(len(guessed))
    return found[order], guessed[order].astype(int), scores[order]


def images_of(rng, kind, is_short):
    others = 0 if is_short else OTHER_KINDS
    has = {name: name == kind or rng.random() < others for name in KINDS}.get
    classes = int(rng.integers(1, 5))
    most = 1 if has("many") else SHORT_IMAGES if is_short else IMAGES
    images = []
    for _ in range(int(rng.integers(1, most + 1))):
        objects = objects_of(rng, has, classes)
        detections = detections_of(rng, has, classes, objects)
        if has("no detections") and rng.random() < 0.7:
            detections = [part[:0] for part in detections]
        if has("empty images") and rng.random() < 0.4:
            objects = [part[:0] for part in objects]
            detections = [part[:0] for part in detections]
        images.append((objects, detections))
    return classes, images


# ---- Values of pycocotools ----


def coco(images, classes, annotations):
    result = COCO()
    for number, annotation in enumerate(annotations, 1):
        annotation["id"] = number
    result.dataset = {
        "images": [{"id": i} for i in range(images)],
        "categories": [{"id": c, "name": str(c)} for c in range(classes)],
        "annotations": annotations,
    }
    result.createIndex()
    return result


def annotation(image, box, label, **more):
    x1, y1, x2, y2 = map(float, box)
    width, height = x2 - x1, y2 - y1
    return {
        "image_id": image,
        "category_id": int(label),
        "bbox": [x1, y1, width, height],
        "area": width * height,
        "iscrowd": 0,
        **more,
    }


def evaluated(classes, images):
    objects, detections = [], []
    for i, ((boxes, labels, areas, crowds), (found, guessed, scores)) in enumerate(images):
        each = list(zip(boxes, labels, areas, crowds))
        # Targets list crowds separately.
        for box, label, area, crowd in sorted(each, key=lambda one: one[3]):
            objects.append(
                annotation(i, box, label, area=float(area), iscrowd=int(crowd)))
        for box, label, score in zip(found, guessed, scores):
            detections.append(annotation(i, box, label, score=float(np.float32(score))))
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(
            coco(len(images), classes, objects),
            coco(len(images), classes, detections),
            "bbox",
        )
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def known(value):
    return None if value == -1 else float(value)


def sum_of(values):
    """Returns a checksum: each known value times a weight of its position."""
    values = values.ravel()
    weights = np.arange(values.size) * 7919 % 101 + 1
    return float((weights * values)[values > -1].sum() / 1000)


# ---- As tensors ----


def padded(rng, rows, fill):
    """Pads to [N, most, ...] with gaps; the gaps are the same for all `rows`."""
    most = max(map(len, rows[0])) + int(rng.integers(0, 3))
    places = [np.sort(rng.permutation(most)[: len(one)]) for one in rows[0]]
    result = []
    for parts, empty in zip(rows, fill):
        whole = np.full((len(parts), most, *parts[0].shape[1:]), empty, float)
        for one, part, place in zip(whole, parts, places):
            one[place] = part
        numbers = [int(x) if x == int(x) else x for x in whole.ravel().tolist()]
        result.append({"shape": list(whole.shape), "numbers": numbers})
    return result


def drawn_set(rng, kind, is_short):
    classes, images = images_of(rng, kind, is_short)
    evaluation = evaluated(classes, images)
    objects = [[part[~image[0][3]] for image in images for part in [image[0][i]]]
               for i in range(3)]
    crowds = [[part[image[0][3]] for image in images for part in [image[0][i]]]
              for i in range(2)]
    detections = [[image[1][i] for image in images] for i in range(3)]
    found, guessed, scores = padded(rng, detections, (7, -1, 0.5))
    precision = evaluation.eval["precision"]
    recall = evaluation.eval["recall"]
    of_classes = [
        [precision[..., c, 0, 2].mean() for c in range(classes)],
        [precision[0, :, c, 0, 2].mean() for c in range(classes)],
        [precision[5, :, c, 0, 2].mean() for c in range(classes)],
        [recall[:, c, 0, 2].mean() for c in range(classes)],
    ]
    return {
        "kind": kind,
        "classes": classes,
        "detections": [found, scores, guessed],
        "targets": [
            *padded(rng, objects, (9, -1, 5)), *padded(rng, crowds, (9, -1))],
        "expected": {
            "values": [known(value) for value in evaluation.stats],
            "of_classes": [[known(v) for v in values] for values in of_classes],
            "precision": sum_of(precision),
            "recall": sum_of(recall),
        },
    }


def main():
    file, option = (*sys.argv[1:], SEED)[:2]
    is_short = option == "--short"
    rng = np.random.default_rng(SEED if is_short else int(option))
    count = len(KINDS) if is_short else SETS
    sets = [drawn_set(rng, KINDS[i % len(KINDS)], is_short) for i in range(count)]
    with open(file, "w") as out:
        out.write("[" + ",\n".join(
            json.dumps(one, separators=(",", ":")) for one in sets) + "]\n")


if __name__ == "__main__":
    main()
