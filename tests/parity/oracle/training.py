"""A net after ten steps, in three precisions, with several optimizers."""

import torch

from .nets import World, autocast, encode_nets, loss_of, new_optimizer
from .tensors import encode

PRECISIONS = ("float32", "bfloat16", "float16")
WRITINGS = {
    "sgd": ("python", "python_fused", "tern"),
    "sgd_l2": ("python", "python_fused", "tern"),
    "adam": ("python", "python_fused", "libtorch", "tern"),
    "adamw": ("python", "python_fused", "libtorch", "tern"),
}


def fixture() -> dict:
    world = World(seed=0)
    runs = [
        run(world, optimizer, writing, precision)
        for optimizer, writings in WRITINGS.items()
        for writing in writings
        for precision in PRECISIONS
        if not is_broken(optimizer, writing, precision)
    ]
    return {**world.encode(), "runs": runs}


def is_broken(optimizer: str, writing: str, precision: str) -> bool:
    """If the first step overflows, Python's fused SGD continues with an
    uninitialized momentum buffer; here it turns to NaN."""
    return optimizer.startswith("sgd") and writing == "python_fused" and precision == "float16"


def run(world: World, optimizer: str, writing: str, precision: str) -> dict:
    net = world.new_nets()[0]
    opt = new_optimizer(optimizer, writing, net.parameters())
    # So high that the first float16 gradients overflow.
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=2.0**20,
        growth_interval=3,
        enabled=precision == "float16",
    )
    losses, trace = [], []
    for image, label in zip(world.images, world.labels):
        with autocast(precision):
            loss = loss_of(net, image, label)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        losses.append(loss.detach())
        trace.append([scaler.get_scale(), scaler._get_growth_tracker()])
    return {
        "optimizer": optimizer,
        "writing": writing,
        "precision": precision,
        "losses": encode(torch.stack(losses)),
        "trace": trace,
        **encode_nets([net]),
    }
