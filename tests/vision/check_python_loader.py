"""Runs exported models with the Python scripts exported beside them.

Usage: check_python_loader.py FOLDER, which the test vision/predictor has filled.
"""

import importlib.util
import pathlib
import sys

try:
    import torch
    import torchvision
except ImportError as error:
    print(f"SKIPPED: this Python cannot import torchvision ({error})")
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
models = sorted(folder.glob("*.safetensors"))
assert len(models) == 18, models
for path in models:
    spec = importlib.util.spec_from_file_location(
        path.stem, path.with_suffix(".py")
    )
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    if path.stem == "graph":
        try:
            program.Predictor(path)
            raise AssertionError("ran a graph that nobody trusts")
        except SystemExit as error:
            assert "--trusted" in str(error), error
    is_graph = path.stem in ("graph", "masks")
    predictor = program.Predictor(path, trusted=is_graph)
    expected = torch.load(path.with_suffix(".pth"), weights_only=True)
    names = list(expected)
    predictions = predictor.predict([folder / "images" / name for name in names])
    for name, prediction in zip(names, predictions):
        # Pixels may differ by 1 of 255: Tern's resize weights have 14 bits.
        worst = (prediction - expected[name]).abs().max().item()
        scale = 90 if path.stem == "ages" else 1
        assert worst < 2e-3 * scale, (path.stem, name, prediction, expected[name])
        print(f"{path.stem:18} {name:8} differs by {worst:.1e}")
        text, first = predictor.text(prediction), prediction.flatten()[0].item()
        if path.stem == "tags":  # above the file's threshold
            pairs = zip(("cat", "dog"), prediction.tolist())
            above = [f"{label} ({p:.4f})" for label, p in pairs if p > 0.3]
            assert text == (", ".join(above) or "none"), text
        elif path.stem == "ages":
            assert text == f"age {first:.4g}" and 0 < first < 90, text
        elif path.stem == "masks":
            shares = [float(word.split()[-1][1:-1]) for word in text.split(", ")]
            assert abs(sum(shares) - 1) < 1e-3, text
            assert shares == sorted(shares, reverse=True), text
        else:
            assert text.startswith(("cat (", "dog (")), text

missing = set(program.NETWORKS) - set(torchvision.models.list_models())
assert missing == {"simple_cnn"}, missing

# The bodies of transformers would make large files, so small bodies are compared with
# torchvision's own outputs.
vision = torchvision.models
transformers = {
    "vit": lambda: vision.VisionTransformer(64, 16, 2, 4, 64, 256),
    "swin": lambda: vision.SwinTransformer(
        [4, 4], 24, [2, 2, 2, 2], [2, 4, 6, 8], [7, 7]
    ),
}
for name, make in transformers.items():
    torch.manual_seed(1)
    net = make().eval()
    program.build_model = lambda name, options: net
    x = torch.rand(2, 3, 64, 64)
    last = net.heads if name == "vit" else net.head
    features = []
    last.register_forward_pre_hook(lambda _, given: features.extend(given))
    with torch.inference_mode():
        net(x)
        model = program.VisionModel(name, 3, 2, [], 0, True).eval()
        model.head = torch.nn.Identity()
        output = model(x)
    if name == "swin":  # after the max-pooled features
        output = output[:, features[0].shape[1] :]
    torch.testing.assert_close(output, features[0], atol=1e-5, rtol=0)
