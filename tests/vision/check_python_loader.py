"""Asks exported models by the programs that were written beside them.

Usage: check_python_loader.py FOLDER, which vision/predictor has filled.
"""

import importlib.util
import pathlib
import sys

try:
    import torch
    import torchvision  # noqa: F401
except ImportError as error:
    print(f"SKIPPED: this Python cannot import torchvision ({error})")
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
models = sorted(folder.glob("*.safetensors"))
assert len(models) == 11, models
for path in models:
    spec = importlib.util.spec_from_file_location(
        path.stem, path.with_suffix(".py")
    )
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    predictor = program.Predictor(path)
    expected = torch.load(path.with_suffix(".pth"), weights_only=True)
    names = list(expected)
    answers = predictor.predict([folder / "images" / name for name in names])
    for name, answer in zip(names, answers):
        # Pixels may differ by 1 of 255: Tern's bilinear weights have 8 bits.
        worst = (answer - expected[name]).abs().max().item()
        assert worst < 2e-3, (path.stem, name, answer, expected[name])
        print(f"{path.stem:18} {name:8} differs by {worst:.1e}")
