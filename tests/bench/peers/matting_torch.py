"""Python's side of the comparisons `matting_*`: the work of matting_timed.cpp,
with the networks of tests/vision/models/matting/matting_net.py."""
import argparse
import json
import pathlib
import sys

import torch
from measure import median_seconds, peak_megabytes
from torch.nn import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "vision" / "models" / "matting"))
from matting_net import MattingBase, MattingRefine, crop, replace  # noqa: E402


def train(model, n, side, bf16, steps):
    model = model.to(memory_format=torch.channels_last).train()
    src, bgr = torch.rand(n, 3, side, side), torch.rand(n, 3, side, side)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    scaler = torch.amp.GradScaler("cpu", enabled=bf16)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = model(src, bgr)
            loss = F.l1_loss(out[0], src[:, :1]) + F.l1_loss(out[1], src)
            for more in out[2:]:
                if more.requires_grad:
                    loss = loss + more.square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return median_seconds(steps, step)


def patches(steps):
    pictures, side, count = 2, 512, 5000
    half = torch.rand(pictures, 42, side // 2, side // 2)
    whole = torch.rand(pictures, 6, side, side)
    coarse = torch.rand(pictures, 4, side, side)
    err = torch.rand(pictures, side * side // 16)

    def step():
        images = half.detach().requires_grad_()
        top = err.topk(count, 1, sorted=False).indices
        chosen = torch.zeros_like(err).scatter_(1, top, 1.0)
        grid = chosen.view(pictures, side // 4, side // 4)
        places = grid.nonzero(as_tuple=True)
        refined = crop(images, places, 2, 3)[:, :4, 2:6, 2:6]
        refined = refined + crop(whole, places, 4, 2).mean()
        replace(coarse.clone(), refined, places).sum().backward()

    return median_seconds(steps, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    bf16, steps = arguments.bf16, arguments.steps
    if arguments.job == "base":
        seconds = train(MattingBase("mobilenet_v2"), 4, 256, bf16, steps)
    elif arguments.job == "refine":
        seconds = train(MattingRefine("mobilenet_v2"), 2, 512, bf16, steps)
    else:
        seconds = patches(steps)
    report = {
        "step_seconds": seconds,
        "peak_megabytes": peak_megabytes(),
    }
    with open(arguments.json, "w") as file:
        json.dump(report, file)


if __name__ == "__main__":
    main()
