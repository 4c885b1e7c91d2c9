"""Writes fixture.json: weight names and outputs of torchvision's and fastai's
networks.

python fixture.py > fixture.json, with torchvision and fastai installed
(./dev bench peers installs them).
"""
import json
import math

import fastai
import torch
import torchvision
from fastai.vision.all import create_head, create_unet_model
from fastai.vision.models import xresnet


def fill(tensor, index):
    """Fills with weights that C++ can compute too, without random numbers."""
    n = tensor.numel()
    wave = torch.cos(torch.arange(n, dtype=torch.float64) * 0.37 + index)
    fan_in = n / tensor.shape[0] if tensor.dim() > 1 else 1
    if tensor.dim() > 1:
        values = wave * math.sqrt(2 / fan_in)
    else:
        values = 1 + 0.1 * wave
    tensor.copy_(values.reshape(tensor.shape))


def images(*shape):
    pixels = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(pixels * 0.01).float().reshape(shape)


def outputs_of(model, x):
    model.eval()
    state = model.state_dict()
    with torch.no_grad():
        for index, tensor in enumerate(state.values()):
            if tensor.is_floating_point():
                fill(tensor, index)
        y = torch.as_tensor(model(x))
    # Every 7th of many outputs is enough and keeps the file small.
    step = 7 if y.numel() > 100 else 1
    return {
        "tensors": [[k, list(v.shape)] for k, v in state.items()],
        "input": list(x.shape),
        "output": y.double().flatten()[::step].tolist(),
    }


def main():
    torch.set_num_threads(1)
    x = images(2, 3, 64, 48)
    models = {}
    for name in "resnet18", "resnet34", "resnet50", "mobilenet_v2":
        model = getattr(torchvision.models, name)(num_classes=10)
        models[name] = outputs_of(model, x)
    for name in "xresnet18", "xresnet34", "xresnet50":
        models[name] = outputs_of(getattr(xresnet, name)(n_out=10), x)
    models["head"] = outputs_of(create_head(24, 10), images(4, 24, 3, 2))
    # An odd size, so that upsampled features must be cropped.
    models["unet"] = outputs_of(
        create_unet_model(
            torchvision.models.resnet18, 3, (64, 64), pretrained=False
        ),
        images(1, 3, 50, 39),
    )
    fixture = {
        "torchvision": torchvision.__version__,
        "fastai": fastai.__version__,
        "models": models,
    }
    print(json.dumps(fixture, separators=(",", ":")))


main()
