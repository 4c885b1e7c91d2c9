"""torchvision's side of the comparison `detection`: the work of
detection_timed.cpp with torchvision's RetinaNet, transforms and, as its
reference, pycocotools."""
import argparse
import contextlib
import io
import json
import pathlib
import time

import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torchvision import tv_tensors
from torchvision.io import ImageReadMode, decode_image
from torchvision.models.detection import backbone_utils, retinanet
from torchvision.models.resnet import resnet18
from torchvision.ops.feature_pyramid_network import LastLevelP6P7
from torchvision.transforms import v2

SIZE, BATCH_SIZE, WARM_UP, BATCHES = 256, 8, 2, 8
CLASSES = 10


class Photos(torch.utils.data.Dataset):
    """Photos, each with a box derived from its number."""

    def __init__(self, files, first, flip):
        self.files, self.first = files, first
        steps = [v2.Resize((SIZE, SIZE), antialias=True)]
        if flip:
            steps.append(v2.RandomHorizontalFlip())
        steps.append(v2.ToDtype(torch.float32, scale=True))
        self.transform = v2.Compose(steps)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = decode_image(self.files[index], mode=ImageReadMode.RGB)
        height, width = image.shape[1:]
        number = self.first + index
        left = 0.05 * (number % 5)
        box = [left * width, 0.1 * height, (left + 0.6) * width, 0.8 * height]
        boxes = tv_tensors.BoundingBoxes(
            [box], format="XYXY", canvas_size=(height, width)
        )
        target = {
            "boxes": boxes,
            "labels": torch.tensor([number % CLASSES]),
            "image_id": number,
        }
        return self.transform(tv_tensors.Image(image), target)


def loader(files, first, trains):
    return torch.utils.data.DataLoader(
        Photos(files, first, flip=trains),
        batch_size=BATCH_SIZE,
        shuffle=trains,
        num_workers=2,
        collate_fn=lambda samples: tuple(zip(*samples)),
    )


def evaluate(model, batches):
    """COCO's twelve metrics over all detections."""
    images, annotations, results = [], [], []
    model.eval()
    with torch.inference_mode():
        for inputs, targets in batches:
            for target, found in zip(targets, model(list(inputs))):
                number = target["image_id"]
                images.append({"id": number, "width": SIZE, "height": SIZE})
                x1, y1, x2, y2 = target["boxes"][0].tolist()
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": number,
                        "category_id": int(target["labels"][0]),
                        "bbox": [x1, y1, x2 - x1, y2 - y1],
                        "area": (x2 - x1) * (y2 - y1),
                        "iscrowd": 0,
                    }
                )
                boxes = found["boxes"].clone()
                boxes[:, 2:] -= boxes[:, :2]
                for box, score, label in zip(
                    boxes.tolist(), found["scores"].tolist(), found["labels"].tolist()
                ):
                    results.append(
                        {
                            "image_id": number,
                            "category_id": label,
                            "bbox": box,
                            "score": score,
                        }
                    )
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": images,
            "annotations": annotations,
            "categories": [{"id": i, "name": str(i)} for i in range(CLASSES)],
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()

    torch.manual_seed(1)
    files = sorted(map(str, pathlib.Path(arguments.data, "train").rglob("*.jpg")))
    trained = (WARM_UP + BATCHES) * BATCH_SIZE
    backbone = backbone_utils._resnet_fpn_extractor(
        resnet18(weights=None),
        5,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    model = retinanet.RetinaNet(
        backbone, CLASSES, min_size=SIZE, max_size=SIZE, score_thresh=0
    ).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()
    begin = 0
    for number, (images, targets) in enumerate(loader(files[:trained], 0, True)):
        if number == WARM_UP:
            begin = time.perf_counter()
        loss = sum(model(list(images), list(targets)).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    train_seconds = time.perf_counter() - begin

    valid = files[trained : trained + BATCHES * BATCH_SIZE]
    evaluate(model, loader(valid, trained, False))  # as Tern's fit does
    begin = time.perf_counter()
    evaluate(model, loader(valid, trained, False))
    valid_seconds = time.perf_counter() - begin
    with open(arguments.json, "w") as file:
        json.dump(
            {"train_seconds": train_seconds, "valid_seconds": valid_seconds}, file
        )


if __name__ == "__main__":
    main()
