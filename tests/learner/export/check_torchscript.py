"""Runs what export_torchscript wrote. Usage: check_torchscript.py FOLDER"""

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

lstm = torch.jit.load(folder / "lstm.pt")  # exported for two samples
assert lstm(torch.rand(2, 6, 8)).shape == (2, 6, 16)
try:
    lstm(torch.rand(3, 6, 8))
    raise AssertionError("three samples were answered")
except torch.jit.Error as error:
    assert "the batch has 3 samples; expected 2" in str(error), error
print("Python runs what Tern has traced.")
