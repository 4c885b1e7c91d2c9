"""The job of tests/bench/amp_timed.cpp in Python."""
import argparse
import json

import torch
import torchvision
from measure import median_seconds


def train(steps, loss_of_batch, optimizer):
    scaler = torch.amp.GradScaler("cpu")

    def step():
        with torch.autocast("cpu"):
            loss = loss_of_batch()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return median_seconds(steps, step)


def resnet18(steps):
    net = torchvision.models.resnet18()
    x, y = torch.randn(16, 3, 128, 128), torch.randint(1000, (16,))
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.1, momentum=0.9, fused=True
    )
    loss = torch.nn.functional.cross_entropy
    return train(steps, lambda: loss(net(x), y), optimizer)


def checkerboard(steps):
    layers, channels = [], 2
    for _ in range(3):
        layers += [
            torch.nn.Conv2d(channels, 256, 1),
            torch.nn.BatchNorm2d(256),
            torch.nn.ReLU(),
        ]
        channels = 256
    net = torch.nn.Sequential(*layers, torch.nn.Conv2d(channels, 1, 1))
    x, y = torch.rand(1, 2, 256, 256), torch.rand(1, 1, 256, 256).round()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    loss = torch.nn.functional.mse_loss
    return train(steps, lambda: loss(net(x), y), optimizer)


def optimizer(steps):
    """Fused Adam on fp32 weights through GradScaler, and autocast's casts of
    weights to bfloat16 and of gradients back."""
    params = [
        p.detach().clone().requires_grad_()
        for p in torchvision.models.resnet50().parameters()
    ]
    adam = torch.optim.Adam(params, lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    grads = [torch.randn_like(p).bfloat16() for p in params]

    def step():
        for p, g in zip(params, grads):
            p.grad = g.float()
        scaler.step(adam)
        scaler.update()
        with torch.no_grad():
            return [p.bfloat16() for p in params]

    return median_seconds(steps, step)


def main():
    jobs = {f.__name__: f for f in (resnet18, checkerboard, optimizer)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, choices=jobs)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    seconds = jobs[arguments.job](arguments.steps)
    with open(arguments.json, "w") as file:
        json.dump({"step_seconds": seconds}, file)


main()
