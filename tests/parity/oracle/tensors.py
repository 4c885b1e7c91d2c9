"""Tensors as JSON."""

import torch

# The type names used in fixtures.
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def encode(tensor: torch.Tensor) -> dict:
    """Type, shape and the bytes in memory as hexadecimal digits."""
    flat = tensor.detach().contiguous().flatten()
    return {
        "dtype": name_of(tensor.dtype),
        "shape": list(tensor.shape),
        "bytes": bytes(flat.view(torch.uint8).tolist()).hex(),
    }


def encode_all(tensors) -> dict:
    """Many tensors of one type, concatenated."""
    return encode(torch.cat([t.detach().flatten() for t in tensors]))
