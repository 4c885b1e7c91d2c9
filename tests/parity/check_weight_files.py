"""Reads weight files that Tern wrote. Usage: check_weight_files.py IN

The expected content comes from oracle/weight_files.py.
"""

import importlib.util
import json
import pathlib
import struct
import sys

import torch

from oracle import weight_files


def main(folder: pathlib.Path) -> None:
    types = weight_files.types()
    for mmap in False, True:
        same(load(folder / "types.pth", mmap), types)
        views = load(folder / "layout.pth", mmap)
        same(views, weight_files.layout())
        assert views["same"].data_ptr() == views["base"].data_ptr()
        assert views["channels_last"].is_contiguous(
            memory_format=torch.channels_last
        )
    same(load(folder / "zip64.pth", True), types)
    net = weight_files.Net()
    net.load_state_dict(load(folder / "net.pth", False), strict=True)

    del types["complex128"]
    read, metadata = read_safetensors(folder / "types.safetensors")
    same(read, types)
    assert metadata == {"format": "pt", "note": 'a "quoted" é\n'}, metadata
    print("Python reads all of Tern's files.")


def load(path: pathlib.Path, mmap: bool) -> dict:
    return torch.load(path, weights_only=True, mmap=mmap)


def same(actual: dict, expected: dict) -> None:
    assert list(actual) == list(expected), (list(actual), list(expected))
    for name, tensor in expected.items():
        got = actual[name]
        assert got.dtype == tensor.dtype, (name, got.dtype)
        assert got.shape == tensor.shape, (name, got.shape)
        assert got.contiguous().view(-1).tolist() == tensor.reshape(-1).tolist()


def read_safetensors(path: pathlib.Path):
    """Reads with the `safetensors` package if installed, else by the format's few rules."""
    if importlib.util.find_spec("safetensors"):
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            names = json_header(path)  # safe_open sorts them
            names.pop("__metadata__")
            return {k: file.get_tensor(k) for k in names}, file.metadata()
    header = json_header(path)
    metadata = header.pop("__metadata__")
    data = path.read_bytes()
    data = data[8 + struct.unpack("<Q", data[:8])[0] :]
    types = dict(
        BOOL="bool", U8="uint8", I8="int8", U16="uint16", I16="int16",
        U32="uint32", I32="int32", U64="uint64", I64="int64",
        F8_E4M3="float8_e4m3fn", F8_E5M2="float8_e5m2", F16="float16",
        BF16="bfloat16", F32="float32", F64="float64", C64="complex64",
    )  # fmt: skip
    state = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = getattr(torch, types[entry["dtype"]])
        assert begin % dtype.itemsize == 0, f"{name} is not aligned"
        state[name] = (
            torch.frombuffer(bytearray(data[begin:end]), dtype=dtype)
            if end > begin
            else torch.empty(0, dtype=dtype)
        ).reshape(entry["shape"])
    return state, metadata


def json_header(path: pathlib.Path) -> dict:
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    assert length % 8 == 0, length
    return json.loads(data[8 : 8 + length])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
