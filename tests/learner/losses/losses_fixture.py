"""Writes losses_fixture.json: fastai's losses and their gradients.

python losses_fixture.py > losses_fixture.json, with fastai installed
(./dev bench peers makes such an environment).
"""
import json
import sys

import fastai
import torch
from fastai.losses import FocalLoss, LabelSmoothingCrossEntropy

CLASSES = 5
SHAPES = {"classes": (7, CLASSES), "pixels": (2, CLASSES, 3, 4)}
WEIGHT = [0.5, 1.0, 2.0, 0.25, 1.5]


def case(name, loss, shape):
    torch.manual_seed(len(shape))
    pred = (3 * torch.randn(shape, dtype=torch.double)).requires_grad_()
    target = torch.randint(CLASSES, (shape[0], *shape[2:]))
    value = loss(pred, target)
    value.backward()
    return {
        "name": name,
        "shape": shape,
        "pred": pred.flatten().tolist(),
        "target": target.flatten().tolist(),
        "loss": value.item(),
        "grad": pred.grad.flatten().tolist(),
    }


def main():
    flat = SHAPES["classes"]
    weight = torch.tensor(WEIGHT, dtype=torch.double)
    cases = [
        case("smooth 0.1", LabelSmoothingCrossEntropy(), flat),
        case("smooth 0.3", LabelSmoothingCrossEntropy(eps=0.3), flat),
        case("focal 2", FocalLoss(), flat),
        case("focal 0.5", FocalLoss(gamma=0.5), flat),
        case("focal 2 weighted", FocalLoss(weight=weight), flat),
        case("focal 2", FocalLoss(), SHAPES["pixels"]),
    ]
    out = {"fastai": fastai.__version__, "weight": WEIGHT, "cases": cases}
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


main()
