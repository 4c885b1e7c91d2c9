"""Writes grad_cam_fixture.json: Grad-CAM with PyTorch's hooks and autograd.

python grad_cam_fixture.py grad_cam_fixture.json
"""
import json
import pathlib
import sys

import torch


def fill(tensor, index):
    """Fills with weights that C++ can compute too, without random numbers."""
    steps = torch.arange(tensor.numel(), dtype=torch.float64)
    tensor.copy_((torch.cos(steps * 0.37 + index) * 0.4).reshape(tensor.shape))


def net():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 5, 3, stride=2, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(5, 3),
    )
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            fill(parameter, index)
    return model.eval()


def heat(model, x, layer, target):
    seen = []
    handle = model[layer].register_forward_hook(lambda m, i, o: seen.append(o))
    logits = model(x)
    handle.remove()
    (gradient,) = torch.autograd.grad(logits[0, target], seen[0])
    weights = gradient[0].mean((1, 2), keepdim=True)
    cam = (seen[0][0] * weights).sum(0).relu()
    return (cam / cam.max().clamp_min(1e-12)).detach()


def main():
    model = net()
    steps = torch.arange(10 * 12 * 3, dtype=torch.int64)
    image = ((steps * steps * 7 + steps * 13) % 256).reshape(10, 12, 3)
    x = (image.permute(2, 0, 1).float() / 255).unsqueeze(0)
    cases = []
    for layer in 0, 1, 3:
        for target in range(3):
            cam = heat(model, x, layer, target)
            cases.append(
                {
                    "layer": str(layer),
                    "target": target,
                    "shape": list(cam.shape),
                    "heat": [round(v, 7) for v in cam.flatten().tolist()],
                }
            )
    likeliest = int(model(x)[0].argmax())
    fixture = {"torch": torch.__version__, "likeliest": likeliest, "cases": cases}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(fixture) + "\n")


main()
