"""Writes matting_fixture.json: what matting_net.py answers, and its gradients.

python matting_fixture.py matting_fixture.json
"""
import json
import math
import pathlib
import sys

import torch

from matting_net import MattingBase, MattingRefine

BACKBONES = "mobilenet_v2", "resnet50", "resnet101"
MODES = "full", "sampling", "thresholding"
SAMPLE_PIXELS, THRESHOLD = 1536, 0.5
BASE_SIZE, REFINE_SIZE = (64, 80), (128, 96)


def fill(model, seed):
    """The same weights as the C++ test, from the same random numbers."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        if tensor.dim() > 1:
            fan_in = tensor.numel() // tensor.shape[0]
            tensor.normal_(0, math.sqrt(2 / fan_in), generator=generator)
        elif name.endswith(("weight", "running_var")):
            tensor.uniform_(0.5, 1.5, generator=generator)
        else:
            tensor.normal_(0, 0.1, generator=generator)
        # Small residual branches, and answers inside 0..1.
        if name.startswith("backbone.") and name.endswith("bn3.weight"):
            tensor.mul_(0.2)
        if name in ("decoder.conv4.weight", "refiner.conv4.weight"):
            tensor.mul_(0.1)
        if name in ("decoder.conv4.bias", "refiner.conv4.bias"):
            tensor.fill_(0.5)


def pictures(n, size):
    generator = torch.Generator().manual_seed(7)
    return [torch.rand(n, 3, *size, generator=generator) for _ in range(2)]


def some(tensor, count):
    """Values spread over a tensor."""
    flat = tensor.detach().flatten()
    values = flat[:: max(1, flat.numel() // count)]
    return [float(f"{value:.8g}") for value in values.tolist()]


def answers(model, size):
    model.eval()
    with torch.no_grad():
        outputs = model(*pictures(2, size))
    return [
        {
            "shape": list(output.shape),
            "mean": output.double().mean().item(),
            "values": some(output, 30),
        }
        for output in outputs
    ]


def gradients(model, size):
    model.train()
    model.aspp.project[3].eval()  # no dropout
    outputs = [o for o in model(*pictures(3, size)) if o.requires_grad]
    sum(((output - 0.3) ** 2).mean() for output in outputs).backward()
    return [
        {
            "name": name,
            "largest": parameter.grad.abs().max().item(),
            "values": some(parameter.grad, 2),
        }
        for name, parameter in model.named_parameters()
    ]


def main():
    torch.set_num_threads(1)
    cases = []
    for backbone in BACKBONES:
        model = MattingBase(backbone)
        fill(model, 1)
        case = {"backbone": backbone, "mode": "base", "kernel": 0}
        case["names"] = list(model.state_dict())
        case["outputs"] = answers(model, BASE_SIZE)
        if backbone == "mobilenet_v2":
            case["gradients"] = gradients(model, BASE_SIZE)
        cases.append(case)
        for kernel in 3, 1:
            model = MattingRefine(
                backbone,
                sample_pixels=SAMPLE_PIXELS,
                threshold=THRESHOLD,
                kernel=kernel,
            )
            fill(model, 2)
            for mode in MODES:
                model.refiner.mode = mode
                case = {"backbone": backbone, "mode": mode, "kernel": kernel}
                case["outputs"] = answers(model, REFINE_SIZE)
                cases.append(case)
            model.refiner.mode = "sampling"
            if backbone == "mobilenet_v2" or kernel == 3:
                cases[-2]["gradients"] = gradients(model, REFINE_SIZE)
    fixture = {"torch": torch.__version__, "cases": cases}
    text = json.dumps(fixture, separators=(",", ":"))
    pathlib.Path(sys.argv[1]).write_text(text.replace('{"backbone"', '\n{"backbone"') + "\n")


main()
