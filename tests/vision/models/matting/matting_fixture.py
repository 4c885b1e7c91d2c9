"""Writes matting_fixture.json: outputs and gradients of matting_net.py.

python matting_fixture.py matting_fixture.json mobilenet_v2

writes the stored file; without a backbone it covers all three, as in the tests with
this machine's PyTorch. The first backbone has each mode and kernel size.
"""
import json
import math
import pathlib
import sys

import torch

from matting_net import MattingBase, MattingRefine, Refiner

BACKBONES = "mobilenet_v2", "resnet50", "resnet101"
SAMPLE_PIXELS = 1536
BASE_SIZE, REFINE_SIZE = (64, 80), (128, 96)


def fill(model):
    """Fills with the same weights as the C++ test, from the same random numbers.

    normal_ and uniform_ are not used: normal_ depends on the processor, and uniform_
    rounds its product and sum only once if the processor can.
    """
    generator = torch.Generator().manual_seed(1)

    def draw(tensor, low, high):
        tensor.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        if tensor.dim() > 1:
            fan_in = tensor.numel() // tensor.shape[0]
            bound = math.sqrt(6 / fan_in)
            draw(tensor, -bound, bound)
        elif name.endswith(("weight", "running_var")):
            draw(tensor, 0.5, 1.5)
        else:
            draw(tensor, -0.2, 0.2)
        # Small residual branches, and outputs in 0..1.
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
    """Returns values spread over a tensor, rounded to six digits."""
    flat = tensor.detach().flatten()
    values = flat[:: max(1, flat.numel() // count)].tolist()
    return [float(f"{value:.6g}") for value in values]


def outputs_of(forward, model, size):
    model.eval()
    with torch.no_grad():
        outputs = forward(model, *pictures(2, size))
    return [
        {
            "shape": list(output.shape),
            "mean": output.double().mean().item(),
            "values": some(output, 20),
        }
        for output in outputs
    ]


def gradients(forward, model, size):
    """Returns gradients in float64, so that rounding is negligible."""
    fill(model)  # resets the running means
    model.double().train()
    model.aspp.project[3].eval()  # no dropout
    model.zero_grad()
    outputs = forward(model, *(x.double() for x in pictures(3, size)))
    outputs = [output for output in outputs if output.requires_grad]
    sum(((output - 0.3) ** 2).mean() for output in outputs).backward()
    found = [
        [parameter.grad.abs().max().item(), *some(parameter.grad, 2)]
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    model.float()
    return found


def base_case(backbone, model):
    names = [n for n in model.state_dict() if not n.startswith("refiner.")]
    case = {
        "backbone": backbone,
        "mode": "base",
        "kernel": 0,
        "names": names,
        "outputs": outputs_of(MattingBase.forward, model, BASE_SIZE),
    }
    if backbone == "mobilenet_v2":
        case["gradients"] = gradients(MattingBase.forward, model, BASE_SIZE)
    return case


def refine_case(backbone, model, mode, kernel):
    model.refiner.mode = mode
    case = {
        "backbone": backbone,
        "mode": mode,
        "kernel": kernel,
        "sample_pixels": SAMPLE_PIXELS,
        "threshold": model.refiner.threshold,
        "outputs": outputs_of(MattingRefine.forward, model, REFINE_SIZE),
    }
    if mode == "sampling" and (backbone == "mobilenet_v2" or kernel == 3):
        case["gradients"] = gradients(
            MattingRefine.forward, model, REFINE_SIZE
        )
    return case


def median_error(model):
    model.eval()
    with torch.no_grad():
        err = model(*pictures(2, REFINE_SIZE))[4]
    return round(err.median().item(), 3)


def main():
    torch.set_num_threads(1)
    cases = []
    for backbone in sys.argv[2:] or BACKBONES:
        model = MattingRefine(backbone, sample_pixels=SAMPLE_PIXELS)
        fill(model)
        threshold = median_error(model)
        cases.append(base_case(backbone, model))
        # The refiner is the same for each backbone.
        is_first = backbone == BACKBONES[0]
        modes = ("full", "thresholding", "sampling") if is_first else ("sampling",)
        for kernel in (3, 1) if is_first else (3,):
            model.refiner = Refiner("full", SAMPLE_PIXELS, threshold, kernel)
            fill(model)
            cases += [
                refine_case(backbone, model, mode, kernel) for mode in modes
            ]
    fixture = {"torch": torch.__version__, "cases": cases}
    text = json.dumps(fixture, separators=(",", ":"))
    text = text.replace('{"backbone"', '\n{"backbone"')  # one line per case
    pathlib.Path(sys.argv[1]).write_text(text + "\n")


main()
