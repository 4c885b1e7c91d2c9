"""Runs the files of write_onnx_case in ONNX Runtime and expects Tern's outputs.
Usage: check_onnx.py FOLDER. Exits with 77 without onnxruntime."""
import pathlib
import sys

import torch

try:
    import onnxruntime
except ImportError:
    sys.exit(77)


def check(file):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(file), options, providers=["CPUExecutionProvider"]
    )
    expected = torch.load(file.with_suffix(".pth"), weights_only=True)
    # For random modules, relative to the largest number, and of any size.
    relative = expected.pop("relative", None)
    tolerance = expected.pop("tolerance").item() if relative is None else 0
    for size in sorted({name.split(".")[0] for name in expected}):
        feed = {
            x.name: expected[f"{size}.input.{i}"].numpy()
            for i, x in enumerate(session.get_inputs())
        }
        for i, output in enumerate(session.run(None, feed)):
            wanted = expected[f"{size}.output.{i}"]
            actual = torch.from_numpy(output)
            assert actual.shape == wanted.shape, (file.name, size, i, actual.shape, wanted.shape)
            if relative is not None:
                finite = wanted.double().nan_to_num(0, 0, 0)
                tolerance = relative.item() * max(finite.abs().max().item(), 0.3)
            elif i == 0 and size != "1":  # otherwise the comparison would be with a constant
                varies = (wanted - wanted.mean(0)).abs().max().item()
                assert varies > 10 * tolerance, (file.name, varies)
            assert actual.dtype == wanted.dtype, (file.name, size, i, actual.dtype, wanted.dtype)
            difference = (actual.double() - wanted.double()).abs()
            difference[actual == wanted] = 0  # infinities too
            difference[actual.isnan() & wanted.isnan()] = 0
            wrong = difference.max().item() if difference.numel() else 0
            assert wrong <= tolerance, (file.name, size, i, wrong)


files = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
assert files
for file in files:
    check(file)
    print(file.name)
