"""The net, its data and its optimizers."""

import contextlib
import copy

import torch
import torch.nn.functional as F

from . import written
from .tensors import DTYPES, encode, encode_all

BATCHES = 10


def new_net() -> torch.nn.Sequential:
    # No bias before BatchNorm: its gradient is pure rounding error, which Adam would amplify to
    # full steps.
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3, bias=False),
        torch.nn.BatchNorm2d(3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 8),
        torch.nn.LayerNorm(8),
        torch.nn.Tanh(),
        torch.nn.Linear(8, 3),
    )


class World:
    """Initial weights of two nets, and batches."""

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        self.nets = [new_net(), new_net()]
        self.images = torch.randn(BATCHES, 16, 1, 4, 4)
        self.labels = torch.randint(0, 3, (BATCHES, 16))

    def encode(self) -> dict:
        return {
            "nets": [encode_all(net.parameters()) for net in self.nets],
            "images": encode(self.images),
            "labels": self.labels.tolist(),
        }

    def new_nets(self) -> list:
        return copy.deepcopy(self.nets)


def autocast(precision: str):
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=DTYPES[precision])


def new_optimizer(name: str, writing: str, params) -> torch.optim.Optimizer:
    """`writing`: python (single-tensor loops), python_fused, or one of
    written.py: libtorch, tern."""
    options = {
        "sgd": dict(lr=0.1, momentum=0.9),
        "sgd_l2": dict(lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
        "adam": dict(lr=0.01),
        "adamw": dict(lr=0.01, weight_decay=0.1),
    }[name]
    if writing in ("python", "python_fused"):
        kind = {
            "sgd": torch.optim.SGD,
            "sgd_l2": torch.optim.SGD,
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
        }[name]
        return kind(params, foreach=False, fused=writing == "python_fused", **options)
    return written.OPTIMIZERS[name, writing](params, **options)


def encode_nets(nets) -> dict:
    """The tensors that training changes."""
    return {
        "parameters": [encode_all(net.parameters()) for net in nets],
        "running": [
            encode_all([net[1].running_mean, net[1].running_var]) for net in nets
        ],
    }


def loss_of(net: torch.nn.Module, image, label) -> torch.Tensor:
    return F.cross_entropy(net(image), label)
