"""custom_fwd and custom_bwd around a matrix product."""

import torch
from torch.amp import custom_bwd, custom_fwd

from .tensors import DTYPES, encode, name_of

FUNCTIONS = ("plain", "float32", "bfloat16")  # the last two set cast_inputs
AUTOCASTS = ("off", "bfloat16", "float16")
INPUTS = (("float32", "float32"), ("bfloat16", "float32"), ("float64", "float64"))


def product(cast_inputs):
    """A custom function that records what it saw."""
    seen = {}

    class Product(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=cast_inputs)
        def forward(ctx, a, b):
            seen["forward_input"] = name_of(a.dtype)
            seen["forward_autocast"] = torch.is_autocast_enabled("cpu")
            ctx.save_for_backward(a, b)
            return a.mm(b)

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            seen["backward_input"] = name_of(grad.dtype)
            seen["backward_autocast"] = torch.is_autocast_enabled("cpu")
            a, b = ctx.saved_tensors
            return grad.mm(b.t()), a.t().mm(grad)

    return Product, seen


def fixture() -> dict:
    torch.manual_seed(3)
    a, b = torch.randn(4, 6), torch.randn(6, 5)
    runs = [
        run(function, autocast, inputs, a, b)
        for function in FUNCTIONS
        for autocast in AUTOCASTS
        for inputs in INPUTS
    ]
    return {"a": encode(a), "b": encode(b), "runs": runs}


def run(function: str, autocast: str, inputs: tuple, a, b) -> dict:
    Product, seen = product(DTYPES.get(function))
    a, b = (
        tensor.to(DTYPES[name], copy=True).requires_grad_()
        for tensor, name in zip((a, b), inputs)
    )
    names = {"function": function, "autocast": autocast, "inputs": inputs}
    dtype = torch.bfloat16 if autocast == "off" else DTYPES[autocast]
    try:
        with torch.autocast("cpu", dtype=dtype, enabled=autocast != "off"):
            out = Product.apply(a, b)
        out.sum().backward()  # outside autocast
    except RuntimeError:
        return {**names, "error": True}
    return {
        **names,
        **seen,
        "out": encode(out),
        "a_grad": encode(a.grad),
        "b_grad": encode(b.grad),
    }
