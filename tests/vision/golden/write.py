"""Writes an exported model of version 1, as docs/inference.md defines it, and its output.

Usage: write.py FOLDER. The files are stored beside this script; later versions of
Tern must still read them.
"""

import hashlib
import json
import pathlib
import struct
import sys

import torch

TYPES = {torch.float32: "F32", torch.int64: "I64"}


def save(path, state, metadata):
    data = b"".join(t.contiguous().numpy().tobytes() for t in state.values())
    if metadata:
        metadata["tern.card"] = checksum(metadata)
        metadata["tern.sha256"] = hashlib.sha256(data).hexdigest()
    header, end = {"__metadata__": metadata}, 0
    for name, tensor in state.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def checksum(metadata):
    framed = b""
    for item in sorted(metadata.items()):
        for text in item:
            framed += f"{len(text.encode())}:{text}".encode()
    return hashlib.sha256(framed).hexdigest()


def main(folder):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2, 1),
        torch.nn.ReLU(),
        torch.nn.BatchNorm2d(4),
        torch.nn.Conv2d(4, 2, 3, 2, 1),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
    )
    options = {
        "channels": [3, 4, 2],
        "kernel_sizes": [],
        "strides": [],
        "batch_norm": True,
        "last_relu": False,
    }
    preprocessing = {
        "height": 16,
        "width": 16,
        "channels": 3,
        "resize": "crop",
        "margin": 0,
        "padding": "reflection",
        "exif_orientation": True,
        "mean": [0.485, 0.456, 0.406],
        "stddev": [0.229, 0.224, 0.225],
    }
    metadata = {
        "format": "pt",
        "tern.model": "1",
        "tern.architecture": "simple_cnn",
        "tern.options": json.dumps(options),
        "tern.classes": json.dumps(["cat", "dög"], ensure_ascii=False),
        "tern.activation": "softmax",
        "tern.preprocessing": json.dumps(preprocessing),
        "tern.metrics": '{"train_loss": 0.25, "valid_loss": null}',
    }
    model(torch.randn(8, 3, 16, 16))  # updates the running statistics
    model.eval()
    save(folder / "model_1.safetensors", model.state_dict(), metadata)
    image = torch.linspace(-1, 1, 3 * 256).view(1, 3, 16, 16)
    output = model(image).softmax(1)[0].detach()
    save(folder / "output_1.safetensors", {"output": output}, {})


main(pathlib.Path(sys.argv[1]))
