"""Writes losses_fixture.json: fastai's losses and their gradients.

python losses_fixture.py > losses_fixture.json, with fastai installed
(./dev bench peers creates such an environment).
"""
import json
import sys

import fastai
import torch
from fastai.losses import DiceLoss, FocalLoss, LabelSmoothingCrossEntropy

CLASSES = 5
SHAPES = {"classes": (7, CLASSES), "pixels": (2, CLASSES, 3, 4)}
WEIGHT = [0.5, 1.0, 2.0, 0.25, 1.5]


IGNORED = 2


def dice(pred, target):
    """fastai's DiceLoss, in the precision of `pred`; fastai's own is float32 only."""
    p = pred.softmax(1)
    is_class = torch.nn.functional.one_hot(target, CLASSES).movedim(-1, 1)
    both, sizes = (p * is_class).sum(2), (p + is_class).sum(2)
    loss = (1 - (2 * both + 1e-5) / (sizes + 1e-5)).mean()
    assert abs(loss - DiceLoss(smooth=1e-5, reduction="mean")(pred, target)) < 1e-6
    return loss


def dice_ce(lambda_dice=1, lambda_ce=1, weight=None, ignore_index=-100):
    """Dice over the known pixels of each image, plus PyTorch's cross-entropy."""
    ce = torch.nn.CrossEntropyLoss(weight, ignore_index=ignore_index)

    def loss(pred, target):
        parts = [
            dice(p[:, t != ignore_index][None], t[t != ignore_index][None])
            for p, t in zip(pred, target)
        ]
        return lambda_dice * sum(parts) / len(parts) + lambda_ce * ce(pred, target)

    return loss


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
        case("dice ce", dice_ce(), SHAPES["pixels"]),
        case("dice alone", dice_ce(lambda_ce=0), SHAPES["pixels"]),
        case("dice ce weighted", dice_ce(0.5, 2, weight), SHAPES["pixels"]),
        case("dice ce ignoring", dice_ce(ignore_index=IGNORED), SHAPES["pixels"]),
    ]
    out = {"fastai": fastai.__version__, "weight": WEIGHT, "cases": cases}
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


main()
