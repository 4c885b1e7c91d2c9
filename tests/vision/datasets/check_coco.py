"""Reads the files of write_coco_test.cpp with pycocotools.

check_coco.py FOLDER

N.json has annotations and N_found.json detections. N_expected.json has the boxes
that Tern read from N.json or wrote to N_found.json: image, category, left, upper,
right and lower edge, and the area (negative for a crowd) or the score.
"""
import contextlib
import io
import json
import pathlib
import sys

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def row(annotation, last):
    x, y, width, height = annotation["bbox"]
    return [annotation["image_id"], annotation["category_id"], x, y, x + width, y + height, last]


def check(folder, name):
    expected = json.loads((folder / f"{name}_expected.json").read_text())
    coco = COCO(folder / f"{name}.json")
    boxes = [
        row(one, -one["area"] if one["iscrowd"] else one["area"])
        for image in coco.dataset["images"]
        for one in coco.imgToAnns[image["id"]]
    ]
    assert boxes == expected["boxes"], f"{name}: {boxes} are read; expected {expected['boxes']}"
    if not expected["detections"]:
        return 0
    results = coco.loadRes(str(folder / f"{name}_found.json"))
    found = [row(one, one["score"]) for one in results.dataset["annotations"]]
    assert found == expected["detections"], f"{name}: {found} are read; expected {expected['detections']}"
    # The files have every field that the evaluation reads.
    evaluation = COCOeval(coco, results, "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    return len(found)


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sorted(file.name.removesuffix("_expected.json") for file in folder.glob("*_expected.json"))
    with contextlib.redirect_stdout(io.StringIO()):
        found = sum(check(folder, name) for name in names)
    assert len(names) >= 20 and found >= 50, f"{len(names)} files with {found} detections; expected more"
    print(f"{len(names)} files and {found} detections are read alike")


main()
