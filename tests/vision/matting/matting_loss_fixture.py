"""Writes matting_loss_fixture.json: losses and errors of background matting.

python matting_loss_fixture.py matting_loss_fixture.json

Reimplements the losses of BackgroundMattingV2's training scripts and the errors of
its evaluation with the same operations.
"""
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F


def wave(shape, step, start):
    """Numbers in 0..1 that C++ can compute too; some are 0 and some 1."""
    at = torch.arange(math.prod(shape), dtype=torch.float64)
    wave = 0.5 + 0.7 * torch.cos(at * step + start)
    return wave.clamp(0, 1).float().reshape(shape)


def blob(height, width, row, column, radius):
    """An alpha that falls from 1 to 0 around a point."""
    y = torch.arange(height, dtype=torch.float64).view(-1, 1) - row
    x = torch.arange(width, dtype=torch.float64).view(1, -1) - column
    return (1.5 - (x * x + y * y).sqrt() / radius).clamp(0, 1).float()


# kornia.filters.sobel
def sobel(x):
    kernel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    kernels = torch.stack([kernel, kernel.T]).unsqueeze(1)
    n, c, h, w = x.shape
    padded = F.pad(x.reshape(n * c, 1, h, w), (1, 1, 1, 1), mode="replicate")
    g = F.conv2d(padded, kernels)
    return (g[:, 0] ** 2 + g[:, 1] ** 2 + 1e-6).sqrt().reshape(n, c, h, w)


def base_loss(pha, fgr, err, true_pha, true_fgr):
    true_err = torch.abs(pha.detach() - true_pha)
    true_msk = true_pha != 0
    return (
        F.l1_loss(pha, true_pha)
        + F.l1_loss(sobel(pha), sobel(true_pha))
        + F.l1_loss(fgr * true_msk, true_fgr * true_msk)
        + F.mse_loss(err, true_err)
    )


def resize(x, size):
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


def refine_loss(pha, fgr, pha_sm, fgr_sm, err_sm, true_pha, true_fgr):
    true_pha_sm = resize(true_pha, pha_sm.shape[2:])
    true_fgr_sm = resize(true_fgr, fgr_sm.shape[2:])
    msk, msk_sm = true_pha != 0, true_pha_sm != 0
    size = true_pha.shape[2:]
    return (
        F.l1_loss(pha, true_pha)
        + F.l1_loss(pha_sm, true_pha_sm)
        + F.l1_loss(sobel(pha), sobel(true_pha))
        + F.l1_loss(sobel(pha_sm), sobel(true_pha_sm))
        + F.l1_loss(fgr * msk, true_fgr * msk)
        + F.l1_loss(fgr_sm * msk_sm, true_fgr_sm * msk_sm)
        + F.mse_loss(
            resize(err_sm, size), resize(pha_sm, size).sub(true_pha).abs()
        )
    )


def with_gradients(loss, outputs, targets):
    outputs = [o.clone().requires_grad_() for o in outputs]
    value = loss(*outputs, *targets)
    value.backward()
    return {
        "value": value.item(),
        # A weighted sum also detects gradients at wrong positions.
        "gradients": [(o.grad * wave(o.shape, 0.9, 4)).sum().item() for o in outputs],
    }


# The gradient error, with the filters of the benchmark's Matlab code.
def gauss_gradient(x, sigma=1.4, epsilon=1e-2):
    half = math.ceil(
        sigma * math.sqrt(-2 * math.log(math.sqrt(2 * math.pi) * sigma * epsilon))
    )

    def gauss(v):
        return math.exp(-v * v / (2 * sigma * sigma)) / (sigma * math.sqrt(2 * math.pi))

    size = 2 * half + 1
    across = torch.tensor(
        [
            [gauss(i - half) * -(j - half) * gauss(j - half) / sigma**2 for j in range(size)]
            for i in range(size)
        ],
        dtype=torch.float64,
    )
    across = across / (across**2).sum().sqrt()
    padded = F.pad(x[None, None], (half,) * 4, mode="replicate")
    gx = F.conv2d(padded, across[None, None])
    gy = F.conv2d(padded, across.T.contiguous()[None, None])
    return (gx**2 + gy**2).sqrt()[0, 0]


def stretched(x):
    x = x.double()
    return (x - x.min()) / (x.max() - x.min())


def gradient_error(pha, truth):
    a, b = gauss_gradient(stretched(pha)), gauss_gradient(stretched(truth))
    return ((a - b) ** 2).sum().item() / 1000


def largest_region(mask):
    """Returns the largest region of pixels connected by their 4 sides."""
    left = {tuple(p) for p in mask.nonzero().tolist()}
    best = set()
    while left:
        region, edge = set(), [min(left)]
        left.remove(edge[0])
        while edge:
            y, x = edge.pop()
            region.add((y, x))
            for p in (y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1):
                if p in left:
                    left.remove(p)
                    edge.append(p)
        if len(region) > len(best):
            best = region
    inside = torch.zeros_like(mask)
    for y, x in best:
        inside[y, x] = True
    return inside


def connectivity_error(pha, truth):
    level = -torch.ones_like(truth)
    for i in range(1, 11):
        both = (pha >= i / 10) & (truth >= i / 10)
        leaves = (level == -1) & ~largest_region(both)
        level[leaves] = (i - 1) / 10
    level[level == -1] = 1
    phi = [1 - (a - level) * (a - level >= 0.15) for a in (pha, truth)]
    return (phi[0] - phi[1]).abs().double().sum().item() / 1000


def main():
    n, h, w = 2, 12, 20
    true_pha, true_fgr = wave((n, 1, h, w), 0.37, 0), wave((n, 3, h, w), 0.53, 1)
    pha, fgr = wave((n, 1, h, w), 0.41, 2), wave((n, 3, h, w), 0.47, 3)
    err = wave((n, 1, h, w), 0.29, 5)
    small = [wave((n, c, h // 4, w // 4), 0.31, s) for c, s in ((1, 6), (3, 7), (1, 8))]
    targets = [true_pha, true_fgr]

    truth = torch.maximum(blob(40, 48, 18, 16, 9), blob(40, 48, 30, 40, 4))
    seen = torch.maximum(blob(40, 48, 17, 18, 8), blob(40, 48, 10, 40, 5))
    fixture = {
        "torch": torch.__version__,
        "sobel": [round(v, 7) for v in sobel(true_pha)[0].flatten().tolist()],
        "base": with_gradients(base_loss, [pha, fgr, err], targets),
        "refine": with_gradients(refine_loss, [pha, fgr, *small], targets),
        "errors": {
            "sad": (seen - truth).abs().double().sum().item() / 1000,
            "mse": ((seen - truth) ** 2).double().mean().item(),
            "grad": gradient_error(seen, truth),
            "conn": connectivity_error(seen, truth),
        },
    }
    pathlib.Path(sys.argv[1]).write_text(json.dumps(fixture) + "\n")


main()
