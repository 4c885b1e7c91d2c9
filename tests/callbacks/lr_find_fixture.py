"""Writes lr_find_fixture.json: fastai's suggestions for given losses.

Usage, with fastai installed (./dev bench peers creates such an environment):
python lr_find_fixture.py > lr_find_fixture.json
"""
import json
import math

import torch
from fastai.callback.schedule import minimum, slide, steep, valley

NUM_IT = 100


def smoothed(losses, beta=0.98):
    average, out = 0.0, []
    for i, loss in enumerate(losses):
        average = beta * average + (1 - beta) * loss
        out.append(average / (1 - beta ** (i + 1)))
    return out


def case(losses):
    smooth = smoothed(losses)
    lrs = [1e-7 * (10 / 1e-7) ** (i / NUM_IT) for i in range(NUM_IT)]
    x = torch.tensor(lrs[NUM_IT // 10 : -5], dtype=torch.float64)
    y = torch.tensor(smooth[NUM_IT // 10 : -5], dtype=torch.float64)
    result = {"losses": losses, "smooth": smooth}
    for find in valley, steep, minimum, slide:
        value = find(x, y, NUM_IT)
        lr = value[0] if isinstance(value, tuple) else value
        result[find.__name__] = float(lr)
    return result


def main():
    def dip(i, low, blow):
        noise = 0.02 * math.sin(i * 1.7)
        fall = 1 / (1 + math.exp(-(i - low) / 5))
        return 2.3 - 1.8 * fall + math.exp((i - blow) / 6) + noise

    cases = [
        case([dip(i, low, blow) for i in range(NUM_IT)])
        for low, blow in [(50, 90), (30, 70), (65, 95)]
    ]
    print(json.dumps({"cases": cases}))


main()
