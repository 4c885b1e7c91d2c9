"""Writes the weight names, outputs, gradients, losses and detections of torchvision's
RetinaNet.

python detection_fixture.py FILE

FILE is detection_fixture.json, or a different file for the live test. Needs
torchvision, which ./dev bench peers installs.
"""
import functools
import json
import pathlib
import sys
import zlib

import torch
import torchvision
from torchvision.models import resnet
from torchvision.models.detection import backbone_utils, retinanet
from torchvision.models.detection.image_list import ImageList
from torchvision.ops.feature_pyramid_network import (
    FeaturePyramidNetwork,
    LastLevelMaxPool,
    LastLevelP6P7,
)

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from random_numbers import fill, some

LOSSES = 40
DETECTIONS = 24
CLASSES = 4
SIZES = (64, 48), (43, 37)


def detector(body, is_v2, num_classes):
    """Builds the network like torchvision's functions, on any ResNet."""
    extra = LastLevelP6P7(body.inplanes if is_v2 else 256, 256)
    backbone = backbone_utils._resnet_fpn_extractor(
        body, 5, returned_layers=[2, 3, 4], extra_blocks=extra
    )
    head = None
    if is_v2:
        head = retinanet.RetinaNetHead(
            256, 9, num_classes, norm_layer=functools.partial(torch.nn.GroupNorm, 32)
        )
        head.regression_head._loss_type = "giou"
    return retinanet.RetinaNet(backbone, num_classes, head=head)


def small(is_v2):
    block = resnet.Bottleneck if is_v2 else resnet.BasicBlock
    return detector(resnet.ResNet(block, [1, 1, 1, 1]), is_v2, 3)


def outputs_of(model, images):
    images = model.transform.batch_images(list(images), size_divisible=32)
    levels = list(model.backbone(images).values())
    outputs = model.head(levels)
    sizes = [tuple(images.shape[2:])] * len(images)
    anchors = model.anchor_generator(ImageList(images, sizes), levels)
    return outputs["cls_logits"], outputs["bbox_regression"], torch.stack(anchors)


def products(tensors):
    """Returns the norm of each tensor and its product with fixed numbers."""
    return [
        [t.norm().item(), (t * some(t.shape, i + 1000)).sum().item()]
        for i, t in enumerate(tensors)
    ]


def names(model):
    tensors = [f"{k} {list(v.shape)}" for k, v in model.state_dict().items()]
    return zlib.crc32("\n".join(tensors).encode())


def record_network(is_v2):
    model = small(is_v2).double()
    fill(model)
    images = [some((2 - i, 3, *size), 3) for i, size in enumerate(SIZES)]
    model.eval()
    with torch.no_grad():
        entry = {"eval": [products(outputs_of(model, x)) for x in images]}
    model.train()
    logits, boxes, _ = outputs_of(model, images[0])
    loss = (logits * some(logits.shape, 5)).sum()
    (loss + (boxes * some(boxes.shape, 6)).sum()).backward()
    gradients = products([p.grad for p in model.parameters()])
    entry["gradients"] = gradients[:: max(1, len(gradients) // 16)]
    return entry


def record_pyramid():
    entry = {}
    for name, extra in ("none", None), ("max_pool", LastLevelMaxPool()):
        fpn = FeaturePyramidNetwork([6, 8, 10], 4, extra).double()
        fill(fpn)
        maps = [some((2, 6, 13, 9), 1), some((2, 8, 7, 5), 2), some((2, 10, 4, 3), 3)]
        with torch.no_grad():
            levels = fpn({str(i): x for i, x in enumerate(maps)})
        entry[name] = products(list(levels.values()))
    return entry


def anchors_of(generator, size, dtype):
    h, w = size
    maps = [
        torch.zeros(1, 1, -(-h // s), -(-w // s), dtype=dtype)
        for s in (8, 16, 32, 64, 128)
    ]
    images = torch.zeros(1, 3, h, w, dtype=dtype)
    return generator(ImageList(images, [size]), maps)[0], maps


def objects(index, images):
    """Returns five rows per image. Some labels are -1; for image index % 4 all are.
    Some objects are duplicated, and some are outside the image."""
    boxes = (some((images, 5, 4), index + 100) + 1) * 40
    boxes[..., 2:] = boxes[..., :2] + boxes[..., 2:].round() + 1
    if index % 2:
        boxes = boxes.round()
    boxes[:, 3] = boxes[:, 1]
    boxes[:, 4] += 200 * (index % 5 == 0)
    labels = ((some((images, 5), index + 200) + 1.3) * 2).floor().long() - 1
    labels = labels.clamp(max=CLASSES - 1)
    if index % 4 < images:
        labels[index % 4] = -1
    return boxes, labels


class NoBackbone(torch.nn.Identity):
    out_channels = 256


def record_loss(index):
    size = (64 + 8 * (index % 5), 96 - 5 * (index % 7))
    images = 3
    entry = {}
    for dtype, key in (torch.double, "double"), (torch.float, "float"):
        model = retinanet.RetinaNet(NoBackbone(), CLASSES)
        model.head.regression_head._loss_type = "giou" if index % 3 == 2 else "l1"
        anchors = anchors_of(model.anchor_generator, size, dtype)[0]
        count = len(anchors)
        boxes, labels = objects(index, images)
        logits = (4 * some((images, count, CLASSES), index + 300) - 2).to(dtype)
        codes = some((images, count, 4), index + 400).to(dtype)
        logits.requires_grad_(), codes.requires_grad_()
        targets = [
            {"boxes": b[l >= 0].to(dtype), "labels": l[l >= 0]}
            for b, l in zip(boxes, labels)
        ]
        losses = model.compute_loss(
            targets,
            {"cls_logits": logits, "bbox_regression": codes},
            [anchors] * images,
        )
        entry[key] = [losses["classification"].item(), losses["bbox_regression"].item()]
        if dtype == torch.float:
            rows = [torch.where(l >= 0)[0] for l in labels]
            entry["matched"] = zlib.crc32(
                b"".join(matched(model, t, anchors, r) for t, r in zip(targets, rows))
            )
            continue
        (losses["classification"] + losses["bbox_regression"]).backward()
        entry["gradients"] = products([logits.grad, codes.grad])
    return entry


def matched(model, target, anchors, rows):
    """Returns a signed byte per anchor: the object's row, -1 or -2."""
    if len(target["boxes"]) == 0:
        return b"\xff" * len(anchors)
    iou = torchvision.ops.box_iou(target["boxes"], anchors)
    index = model.proposal_matcher(iou)
    index = torch.where(index >= 0, rows[index.clamp(min=0)], index)
    return bytes(index.to(torch.uint8).tolist())


def record_detections(index):
    size = (64 + 8 * (index % 5), 96 - 5 * (index % 7))
    images = 2
    model = retinanet.RetinaNet(NoBackbone(), CLASSES)
    if index % 2:
        model.topk_candidates, model.detections_per_img = 40, 12
    if index % 3 == 2:
        model.score_thresh, model.nms_thresh = 0.4, 0.3
    anchors, maps = anchors_of(model.anchor_generator, size, torch.float)
    counts = [9 * m.shape[2] * m.shape[3] for m in maps]
    wide = (0, 2, 4)[index % 3]
    logits = (4 * some((images, len(anchors), CLASSES), index + 500) - wide).float()
    codes = some((images, len(anchors), 4), index + 600).float()
    outputs = {"cls_logits": logits, "bbox_regression": codes}
    found = model.postprocess_detections(
        {k: list(v.split(counts, 1)) for k, v in outputs.items()},
        [list(anchors.split(counts))] * images,
        [size] * images,
    )
    return [
        {
            "scores": products([f["scores"].double()]),
            # The count and the sum for each class, as the order of equal
            # scores is undefined.
            "classes": [sums(f, f["labels"] == c) for c in range(CLASSES)],
        }
        for f in found
    ]


def sums(found, mask):
    scores = found["scores"][mask].double()
    boxes = (found["boxes"][mask] * scores[:, None]).sum(0)
    return [float(mask.sum()), scores.sum().item(), *boxes.tolist()]


def short(value):
    """Rounds floats to nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [short(v) for v in value]
    if isinstance(value, dict):
        return {key: short(v) for key, v in value.items()}
    return value


def main():
    torch.set_num_threads(1)
    make = torchvision.models.detection
    options = {"weights": None, "weights_backbone": None}
    with torch.device("meta"):
        all_names = {
            "retinanet_resnet50_fpn": names(make.retinanet_resnet50_fpn(**options)),
            "retinanet_resnet50_fpn_v2": names(make.retinanet_resnet50_fpn_v2(**options)),
            "retinanet_resnet18_fpn": names(detector(resnet.resnet18(), False, 91)),
            "retinanet_resnet18_fpn_v2": names(detector(resnet.resnet18(), True, 91)),
        }
    generator = retinanet._default_anchorgen()
    result = {
        "torchvision": torchvision.__version__,
        "names": all_names,
        "pyramid": record_pyramid(),
        "anchors": [
            products([anchors_of(generator, size, torch.float)[0].double()])[0]
            for size in SIZES
        ],
        "networks": {"v1": record_network(False), "v2": record_network(True)},
        "losses": [record_loss(i) for i in range(LOSSES)],
        "detections": [record_detections(i) for i in range(DETECTIONS)],
    }
    with open(sys.argv[1], "w") as file:
        json.dump(short(result), file, separators=(",", ":"))


if __name__ == "__main__":
    main()
