"""The job of tests/bench/mixed_timed.cpp with torchvision's networks: autocast
in bfloat16, channels-last, fused AdamW, eager or compiled."""
import argparse
import json

import torch
import torchvision
from measure import median_seconds, peak_megabytes

SIDE, CLASSES = 224, 10


def network(name):
    if name == "unet_resnet18":
        # fastai's U-Net is plain PyTorch; torchvision has none.
        from fastai.vision.learner import create_unet_model

        return create_unet_model(
            torchvision.models.resnet18, CLASSES, (SIDE, SIDE), pretrained=False
        )
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    layout = torch.channels_last
    model = network(arguments.net).to(memory_format=layout).train()
    forward = torch.compile(model) if arguments.compile else model
    batch = arguments.batch
    images = torch.rand(batch, 3, SIDE, SIDE).to(memory_format=layout)
    is_segmentation = arguments.net.startswith("unet")
    shape = (batch, SIDE, SIDE) if is_segmentation else (batch,)
    labels = torch.randint(CLASSES, shape)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    is_autocast = arguments.precision != "fp32"

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    report = {
        "seconds": median_seconds(arguments.steps, step),
        "peak_megabytes": peak_megabytes(),
    }
    with open(arguments.json, "w") as file:
        json.dump(report, file)


main()
