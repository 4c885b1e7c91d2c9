"""Writes resnet_fixture.json: what torchvision's ResNets are called and answer.

python resnet_fixture.py > resnet_fixture.json, with torchvision installed
(./dev bench peers makes such an environment).
"""
import json
import math

import torch
import torchvision


def fill(tensor, index):
    """Weights that C++ can make too: no random numbers."""
    n = tensor.numel()
    wave = torch.cos(torch.arange(n, dtype=torch.float64) * 0.37 + index)
    fan_in = n / tensor.shape[0] if tensor.dim() > 1 else 1
    if tensor.dim() > 1:
        values = wave * math.sqrt(2 / fan_in)
    else:
        values = 1 + 0.1 * wave
    tensor.copy_(values.reshape(tensor.shape))


def main():
    torch.set_num_threads(1)
    fixture = {"torchvision": torchvision.__version__, "models": {}}
    for name in "resnet18", "resnet34", "resnet50":
        model = getattr(torchvision.models, name)(num_classes=10).eval()
        state = model.state_dict()
        with torch.no_grad():
            for index, tensor in enumerate(state.values()):
                if tensor.is_floating_point():
                    fill(tensor, index)
            pixels = torch.arange(2 * 3 * 64 * 48, dtype=torch.float64)
            x = torch.sin(pixels * 0.01).float().reshape(2, 3, 64, 48)
            y = model(x)
        fixture["models"][name] = {
            "tensors": [[k, list(v.shape)] for k, v in state.items()],
            "output": y.double().flatten().tolist(),
        }
    print(json.dumps(fixture, separators=(",", ":")))


main()
