"""Runs the files of export_torchscript in Python. Usage: check_torchscript.py FOLDER"""

import pathlib
import sys

import torch

folder = pathlib.Path(sys.argv[1])
expected = torch.load(folder / "expected.pth", weights_only=True)
model = torch.jit.load(folder / "nested.pt")
assert not model.training
assert torch.equal(model(expected["input"]), expected["output"])
state = {k[6:]: v for k, v in expected.items() if k.startswith("state.")}
actual = model.state_dict()
assert list(actual) == list(state), (list(actual), list(state))
assert all(torch.equal(actual[name], state[name]) for name in state)

lstm = torch.jit.load(folder / "lstm.pt")  # exported for a fixed batch of two samples
assert lstm(torch.rand(2, 6, 8)).shape == (2, 6, 16)
try:
    lstm(torch.rand(3, 6, 8))
    raise AssertionError("three samples were accepted")
except torch.jit.Error as error:
    assert "the batch has 3 samples; expected 2" in str(error), error
# Random modules at several batch sizes.
for file in sorted(folder.glob("random_*.pt")):
    model = torch.jit.load(file)
    expected = torch.load(file.with_suffix(".pth"), weights_only=True)
    relative = expected.pop("relative").item()
    for size in sorted({name.split(".")[0] for name in expected}):
        outputs = model(expected[f"{size}.input.0"])
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
        for i, actual in enumerate(outputs):
            wanted = expected[f"{size}.output.{i}"]
            assert actual.dtype == wanted.dtype and actual.shape == wanted.shape, (file.name, size)
            largest = wanted.double().abs().max().item()
            wrong = (actual.double() - wanted.double()).abs().max().item()
            assert wrong <= relative * max(largest, 0.3), (file.name, size, i, wrong)
print("Python runs what Tern has traced.")
