"""Writes the weight names, outputs and gradients of torchvision's networks, in eval
and train mode, at two sizes.

python networks_fixture.py FILE           one small network per family, in full:
                                          for the live test
python networks_fixture.py FILE --all     all networks in full; then
    TERN_NETWORKS=FILE vision_models_test --file=vision/models/networks_parity
    both with OMP_NUM_THREADS=1, as a different order of summation changes the fp32
    outputs of deep networks in train mode by up to 2e-3
python networks_fixture.py FILE --short   networks_fixture.json: some of the
                                          numbers; only names and eval outputs
                                          for larger networks

Needs torchvision, which ./dev bench peers installs. Networks that only timm has are
skipped if timm is not installed.
"""
import json
import pathlib
import sys
import zlib

import torch
import torchvision

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from random_numbers import fill, some

try:
    import timm
except ImportError:
    timm = None

SMALL = (
    "densenet121",
    "efficientnet_b0",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "small_convnext",
    "small_resnext",
    "small_swin",
    "small_timm_vit",
    "small_vit_64",
    "small_vit_96",
)
LARGE = (
    "convnext_base",
    "convnext_small",
    "convnext_tiny",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "mobilenet_v3_large",
    "regnet_y_8gf",
    "resnet152",
    "resnext50_32x4d",
    "swin_t",
    "vit_b_16",
    "vit_b_32",
    "vit_s_16",
    "wide_resnet50_2",
)
OF_TIMM = "small_timm_vit", "vit_s_16"


def sizes(name):
    if name in OF_TIMM:  # the second size needs resized position embeddings
        return (2, 3, 64, 64), (1, 3, 96, 64)
    if "vit" in name:  # supports only this size
        side = 96 if name == "small_vit_96" else 64
        return (2, 3, side, side), (1, 3, side, side)
    return (2, 3, 64, 48), (1, 3, 75, 101)


def small_convnext(num_classes, stochastic_depth_prob=0.3):
    config = torchvision.models.convnext.CNBlockConfig
    return torchvision.models.ConvNeXt(
        [
            config(24, 48, 2),
            config(48, 96, 2),
            config(96, 192, 3),
            config(192, None, 2),
        ],
        stochastic_depth_prob=stochastic_depth_prob,
        num_classes=num_classes,
    )


def small_resnext(num_classes):
    return torchvision.models.ResNet(
        torchvision.models.resnet.Bottleneck,
        [1, 2, 1, 1],
        num_classes=num_classes,
        groups=8,
        width_per_group=4,
    )


def small_swin(num_classes):
    return torchvision.models.SwinTransformer(
        [4, 4],
        24,
        [2, 2, 2, 2],
        [2, 4, 6, 8],
        [7, 7],
        stochastic_depth_prob=0.2,
        num_classes=num_classes,
    )


def small_vit_64(num_classes, image_size=64):
    return torchvision.models.VisionTransformer(
        image_size, 16, 2, 4, 64, 256, num_classes=num_classes
    )


def small_vit_96(num_classes):
    return small_vit_64(num_classes, 96)


def vit_s_16(num_classes, **options):
    return timm.create_model(
        "vit_small_patch16_224",
        img_size=64,
        dynamic_img_size=True,
        num_classes=num_classes,
        **options,
    )


def small_timm_vit(num_classes):
    return vit_s_16(num_classes, embed_dim=64, depth=2, num_heads=4)


def build(name, drops):
    options = {"num_classes": 10}
    if not drops and name.startswith(("efficientnet", "mobilenet")):
        options["dropout"] = 0
    if name.startswith("vit_b"):
        options["image_size"] = 64
    # Skips initialization, except where torch computes widths or indices.
    computes = name in OF_TIMM or "swin" in name or "regnet" in name
    with torch.device("cpu" if computes else "meta"):
        make = globals().get(name) or getattr(torchvision.models, name)
        model = make(**options)
    for module in model.modules():
        if not drops and isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0
    model = model if computes else model.to_empty(device="cpu")
    fill(model)
    return model


def products(tensors):
    """Returns the norm of each tensor and its product with fixed numbers."""
    return [
        [t.norm().item(), (t * some(t.shape, i + 1000)).sum().item()]
        for i, t in enumerate(tensors)
    ]


def short(value):
    """Rounds floats to nine digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [short(v) for v in value]
    if isinstance(value, dict):
        return {key: short(v) for key, v in value.items()}
    return value


def learn(model, x):
    """Returns train-mode outputs, and runs backward from their weighted sum."""
    model.train()
    y = model(x)
    (y * some(y.shape, 5).to(y.dtype)).sum().backward()
    return y.flatten().tolist()


def names(model):
    tensors = [f"{k} {list(v.shape)}" for k, v in model.state_dict().items()]
    return {"names": zlib.crc32("\n".join(tensors).encode())}


def shares(model):
    """Returns the default probabilities of stochastic depth and dropout."""
    modules = list(model.modules())
    depth = torchvision.ops.StochasticDepth
    return {
        "blocks": [m.p for m in modules if isinstance(m, depth)],
        "dropout": [m.p for m in modules if isinstance(m, torch.nn.Dropout) and m.p],
    }


def record(name, is_short):
    images = [some(shape, 3) for shape in sizes(name)]
    model = build(name, drops=False)
    entry = names(model) | shares(build(name, drops=True))
    last = torch.channels_last
    floats = [x.float().contiguous(memory_format=last) for x in images]
    if is_short and name in LARGE:
        # With so many layers, float results differ between processors.
        model.double().eval()
        with torch.no_grad():
            entry["double"] = [model(x).flatten().tolist() for x in images]
        return short(entry)
    with torch.no_grad():
        model.eval()
        entry["eval"] = [model(x).flatten().tolist() for x in floats]
    if not is_short:
        # BatchNorm over few pixels amplifies rounding, so the layout is Tern's.
        # The random numbers are the same because it is the same machine.
        model.to(memory_format=last).train()
        with torch.no_grad():
            entry["train"] = [model(x).flatten().tolist() for x in floats]
        model = build(name, drops=True)
        entry["seed"] = 9
        torch.manual_seed(9)
    model.double()
    entry["learnt"] = [learn(model, x) for x in images]
    entry["gradients"] = products([p.grad for p in model.parameters()])
    entry["buffers"] = products(
        [b for n, b in model.named_buffers() if "running" in n]
    )
    if is_short:
        # Keeps an evenly spaced subset.
        for key in ("gradients", "buffers"):
            entry[key] = entry[key][:: max(1, len(entry[key]) // 16)]
    return short(entry)


def main():
    torch.set_num_threads(1)
    is_short = "--short" in sys.argv
    small, large = (
        [name for name in family if timm or name not in OF_TIMM]
        for family in (SMALL, LARGE)
    )
    networks = {name: record(name, is_short) for name in small}
    if is_short or "--all" in sys.argv:
        networks |= {name: record(name, is_short) for name in large}
    with open(sys.argv[1], "w") as file:
        json.dump(
            {"torchvision": torchvision.__version__, "networks": networks},
            file,
            separators=(",", ":"),
        )


if __name__ == "__main__":
    main()
