"""The job of tests/bench/networks_timed.cpp with torchvision's networks."""
import argparse
import json

import torch
import torchvision
from measure import median_seconds, peak_megabytes

IMAGES, SIDE = 4, 224


@torch.no_grad()
def evaluate(model, images, steps):
    model.eval()
    return median_seconds(steps, lambda: model(images))


def train(model, images, steps):
    labels = torch.arange(IMAGES)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    model.train()

    def step():
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return median_seconds(steps, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    layout = torch.channels_last
    model = torchvision.models.get_model(arguments.net, weights=None)
    model = model.to(memory_format=layout)
    images = torch.rand(IMAGES, 3, SIDE, SIDE).to(memory_format=layout)
    # The peak covers the whole process, so evaluation runs first.
    report = {
        "evaluation_seconds": evaluate(model, images, arguments.steps),
        "evaluation_megabytes": peak_megabytes(),
        "step_seconds": train(model, images, arguments.steps),
        "peak_megabytes": peak_megabytes(),
    }
    with open(arguments.json, "w") as file:
        json.dump(report, file)


main()
