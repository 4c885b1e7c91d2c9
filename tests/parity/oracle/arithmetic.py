"""How this CPU rounds.

Instruction sets and BLAS libraries sum in different orders. If these few operations
give different bits from here, no other result can be compared bit for bit.
"""

import torch
import torch.nn.functional as F

from .tensors import encode, name_of


def fixture() -> dict:
    torch.manual_seed(1)
    return {"probes": [probe(d) for d in (torch.float32, torch.bfloat16, torch.float16)]}


def probe(dtype: torch.dtype) -> dict:
    image = torch.randn(16, 1, 4, 4).to(dtype)
    kernel = torch.randn(3, 1, 3, 3).to(dtype).requires_grad_()
    weight = torch.randn(8, 12).to(dtype).requires_grad_()
    scores = F.linear(F.conv2d(image, kernel).flatten(1), weight)
    scores.backward(torch.ones_like(scores))
    return {
        "dtype": name_of(dtype),
        "image": encode(image),
        "kernel": encode(kernel),
        "weight": encode(weight),
        "scores": encode(scores),
        "norm": encode(scores.norm()),
        "kernel_grad": encode(kernel.grad),
        "weight_grad": encode(weight.grad),
        "sum": encode(weight.add(weight.grad, alpha=0.3)),
    }
