"""The type that each operation returns under CPU autocast."""

import torch
import torch.nn.functional as F

from .tensors import DTYPES, name_of

# Each takes two matrices [4, 4]; most use only the first.
OPERATIONS = {
    "mm": torch.mm,
    "matmul": torch.matmul,
    "linear": F.linear,
    "bmm": lambda a, b: torch.bmm(a[None], b[None]),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "conv1d": lambda a, b: F.conv1d(a[None], b[:, :, None]),
    "conv2d": lambda a, b: F.conv2d(a[None, None], b[None, None]),
    "conv_transpose2d": lambda a, b: F.conv_transpose2d(a[None, None], b[None, None]),
    "scaled_dot_product_attention": lambda a, b: F.scaled_dot_product_attention(
        a[None, None], b[None, None], b[None, None]
    ),
    "prelu": lambda a, b: F.prelu(a, b[0]),
    "add": torch.add,
    "mul": torch.mul,
    "add_": lambda a, b: a.clone().add_(b),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "relu": lambda a, b: F.relu(a),
    "gelu": lambda a, b: F.gelu(a),
    "tanh": lambda a, b: torch.tanh(a),
    "sigmoid": lambda a, b: torch.sigmoid(a),
    "max_pool2d": lambda a, b: F.max_pool2d(a[None, None], 2),
    "avg_pool2d": lambda a, b: F.avg_pool2d(a[None, None], 2),
    "softmax": lambda a, b: F.softmax(a, 1),
    "log_softmax": lambda a, b: F.log_softmax(a, 1),
    "sum": lambda a, b: a.sum(),
    "mean": lambda a, b: a.mean(),
    "prod": lambda a, b: a.prod(),
    "cumsum": lambda a, b: a.cumsum(0),
    "exp": lambda a, b: a.exp(),
    "log": lambda a, b: a.log(),
    "pow": lambda a, b: a.pow(2),
    "norm": lambda a, b: a.norm(),
    "layer_norm": lambda a, b: F.layer_norm(a, [4]),
    "group_norm": lambda a, b: F.group_norm(a[None], 2),
    "batch_norm": lambda a, b: F.batch_norm(a, None, None, training=True),
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "kl_div": lambda a, b: F.kl_div(a, b, reduction="batchmean"),
    "nll_loss": lambda a, b: F.nll_loss(a, torch.arange(4)),
    "cross_entropy": lambda a, b: F.cross_entropy(a, torch.arange(4)),
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}

PAIRS = [
    ("float32", "float32"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
    ("bfloat16", "float32"),
    ("float32", "float16"),
    ("float64", "float64"),
    ("float64", "float32"),
]


def fixture() -> dict:
    return {
        "policies": {
            autocast: {
                name: {
                    " ".join(pair): output(operation, pair, autocast) for pair in PAIRS
                }
                for name, operation in OPERATIONS.items()
            }
            for autocast in ("off", "bfloat16", "float16")
        }
    }


def output(operation, pair: tuple, autocast: str) -> str:
    a, b = (torch.full((4, 4), 0.5, dtype=DTYPES[name]) for name in pair)
    dtype = torch.bfloat16 if autocast == "off" else DTYPES[autocast]
    with torch.autocast("cpu", dtype=dtype, enabled=autocast != "off"):
        try:
            return name_of(operation(a, b).dtype)
        except (RuntimeError, ValueError):
            return "error"
