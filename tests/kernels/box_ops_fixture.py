"""Writes the results of torchvision.ops for 1,000 sets of boxes.

python box_ops_fixture.py FILE

FILE is box_ops_fixture.json, or a temporary file for the live test. Requires
torchvision, which ./dev bench peers installs.
"""
import json
import pathlib
import sys

import torch
import torchvision
from torchvision import ops
from torchvision.models.detection import _utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from random_numbers import some

SETS = 1000
CODED = 100  # the other functions are recorded for these sets only


def boxes_of(count, index):
    """Boxes, some without area, some duplicated; every third set is rounded."""
    middles = (some((count, 2), 2 * index) + 1) * 50
    sizes = (some((count, 2), 2 * index + 1) + 1) * 30
    sizes[::7, 0] = 0
    sizes[3::11] = 0
    boxes = torch.cat([middles - sizes / 2, middles + sizes / 2], 1)
    boxes[2::5] = boxes[1::5][: len(boxes[2::5])]
    if index % 3 == 0:
        boxes = boxes.round()
    return boxes if index % 4 == 3 else boxes.float()


def count_of(index):
    return 400 if index % 100 == 99 else index % 40


def record(index):
    count = count_of(index)
    boxes = boxes_of(count, index)
    scores = some((count,), index + 5000)
    if index % 2:
        scores = (scores * 5).round() / 5  # many are equal
    scores = scores.to(boxes.dtype)
    classes = ((some((count,), index + 9000) + 1) * 2).floor().long()
    threshold = (0.5, 0.3, 0.7, 0.0)[index % 5 % 4]
    entry = {
        "nms": ops.nms(boxes, scores, threshold).tolist(),
        # torchvision offsets each class, so boxes that begin below -1 would overlap boxes of a
        # different class.
        "batched_nms": ops.batched_nms(
            boxes.clamp(min=0), scores, classes, threshold
        ).tolist(),
    }
    if index < CODED:
        others = boxes_of(7, index + 20000).to(boxes.dtype)
        pairs = boxes_of(count, index + 30000).to(boxes.dtype)
        wide = pairs + torch.tensor([0, 0, 5, 9]).to(boxes.dtype)
        codes = 3 * some((count, 4), index + 40000).to(boxes.dtype)
        weights = (1.0, 1.0, 1.0, 1.0) if index % 2 else (10.0, 10.0, 5.0, 5.0)
        coder = _utils.BoxCoder(weights)
        for name, values in {
            "box_area": ops.box_area(boxes),
            "box_iou": ops.box_iou(boxes, others),
            "generalized_box_iou": ops.generalized_box_iou(boxes, others),
            "generalized_box_iou_loss": ops.generalized_box_iou_loss(boxes, pairs),
            "clip_boxes_to_image": ops.clip_boxes_to_image(boxes, (60, 70)),
            "encode_boxes": coder.encode_single(boxes, wide),
            "decode_boxes": coder.decode_single(codes, wide),
        }.items():
            values = values.double().flatten()
            entry[name] = [short(values[values.isfinite()]), len(values)]
    return entry


def short(values):
    """The number of finite values, their sum, and their product with fixed random numbers."""
    along = (values * some(values.shape, 17)).sum().item()
    return [len(values), float(f"{values.sum().item():.9g}"), float(f"{along:.9g}")]


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        json.dump(
            {
                "torchvision": torchvision.__version__,
                "sets": [record(index) for index in range(SETS)],
            },
            file,
            separators=(",", ":"),
        )


if __name__ == "__main__":
    main()
