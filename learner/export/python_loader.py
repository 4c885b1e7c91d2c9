"""Predicts with a model that Tern has exported.

    python digits.py image.png ...     reads digits.safetensors in its folder

or, in a program, `Predictor("digits.safetensors").predict(["image.png"])`.
Needs torch and Pillow, and torchvision for its networks, but not Tern. Like
the C++ Predictor, it runs no code from the file, unless the file holds a
model's graph and you declare that you trust it: pass --trusted as the first
argument, or Predictor(..., trusted=True).
"""

import io
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

# simple_cnn, and networks that torchvision has under these names.
# fmt: off
NETWORKS = (
    "simple_cnn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
    "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "densenet121", "efficientnet_b0", "efficientnet_b1",
    "efficientnet_b2", "efficientnet_b3", "regnet_y_400mf", "regnet_y_8gf",
    "convnext_tiny", "convnext_small", "convnext_base", "vit_b_16", "vit_b_32",
    "swin_t",
)
# fmt: on
TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
ACTIVATIONS = {
    "none": lambda x: x,
    "softmax": lambda x: x.softmax(1),
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}


def read_safetensors(path):
    """Returns the tensors of a file by name, and its metadata."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    state = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        values = bytearray(data[begin + first : begin + end])
        dtype = TYPES[entry["dtype"]]
        flat = (
            torch.frombuffer(values, dtype=dtype)
            if values
            else torch.empty(0, dtype=dtype)
        )
        state[name] = flat.view(entry["shape"])
    return state, metadata


def load_graph(state, trusted):
    """Returns the network of a file with a TorchScript graph."""
    if not trusted:
        raise SystemExit(
            "The file holds a TorchScript graph, a program that torch would "
            "run. Say --trusted if you trust who wrote it."
        )
    model = torch.jit.load(io.BytesIO(state["torchscript"].numpy().tobytes()))
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dtype == torch.float16:
            tensor.data = tensor.data.float()
    return model


def build_model(name, options):
    """Builds a network from torchvision's modules, or a simple_cnn."""
    if name == "simple_cnn":
        return simple_cnn(**options)
    if name == "vision_model":
        return VisionModel(**options)
    import torchvision

    channels = options.get("in_channels", 3)
    stride = options.get("output_stride", 32)
    used = ("num_classes", "image_size")  # others are for training only
    options = {key: options[key] for key in used if key in options}
    if stride != 32:
        options["replace_stride_with_dilation"] = [False, stride == 8, True]
    try:
        model = torchvision.models.get_model(name, weights=None, **options)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise SystemExit(
            f"torchvision has no {name} with the options {options}; use "
            "Tern's Predictor, or tern::export_torchscript."
        ) from error
    if channels != 3:
        name, first = next(
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, torch.nn.Conv2d)
        )
        parent, _, last = name.rpartition(".")
        conv = torch.nn.Conv2d(
            channels,
            first.out_channels,
            first.kernel_size,
            first.stride,
            first.padding,
            bias=first.bias is not None,
        )
        setattr(model.get_submodule(parent), last, conv)
    return model


class VisionModel(torch.nn.Module):
    """A torchvision network with fastai's head in place of its classifier."""

    def __init__(
        self,
        body,
        in_channels,
        outputs,
        hidden,
        dropout,
        concat_pool,
        y_range=(),
    ):
        super().__init__()
        self.body = build_model(body, {"in_channels": in_channels})
        names = ("fc", "classifier", "head", "heads")
        last = next(name for name in names if hasattr(self.body, name))
        self.has_maps = last != "heads"  # a ViT has no feature maps
        features = next(
            module.in_features
            for module in getattr(self.body, last).modules()
            if isinstance(module, torch.nn.Linear)
        )
        setattr(self.body, last, torch.nn.Identity())
        self.body.avgpool = torch.nn.Identity()
        self.concat_pool = concat_pool and self.has_maps
        features *= 2 if self.concat_pool else 1
        widths = [features, *hidden, outputs]
        layers = [torch.nn.Identity() for _ in range(2 * self.has_maps)]
        for i, (width, following) in enumerate(zip(widths, widths[1:])):
            is_last = i + 2 == len(widths)
            layers.append(torch.nn.BatchNorm1d(width))
            if dropout > 0:
                layers.append(torch.nn.Dropout())
            layers.append(torch.nn.Linear(width, following, bias=False))
            if not is_last:
                layers.append(torch.nn.ReLU())
        self.head = torch.nn.Sequential(*layers)
        self.y_range = y_range

    def features(self, x):
        if hasattr(self.body, "features"):
            x = self.body.features(x)
            kind = type(self.body).__name__
            if kind == "SwinTransformer":
                return self.body.permute(self.body.norm(x))
            return x.relu() if kind == "DenseNet" else x
        for name, module in self.body.named_children():
            x = module(x)
        return x

    def class_token(self, x):
        """Returns a ViT's class token, for images of any size."""
        x = self.body.conv_proj(x)
        token = self.body.class_token.expand(len(x), -1, -1)
        positions = self.body.encoder.pos_embedding
        size = tuple(x.shape[2:])
        side = math.isqrt(positions.shape[1] - 1)
        if size != (side, side):
            grid = positions[:, 1:].unflatten(1, (side, side))
            grid = F.interpolate(
                grid.permute(0, 3, 1, 2), size, mode="bicubic", antialias=True
            )
            grid = grid.flatten(2).transpose(1, 2)
            positions = torch.cat([positions[:, :1], grid], 1)
        x = torch.cat([token, x.flatten(2).transpose(1, 2)], 1) + positions
        return self.body.encoder.ln(self.body.encoder.layers(x))[:, 0]

    def forward(self, x):
        if self.has_maps:
            x = self.features(x)
            mean = x.mean((2, 3))
            largest = [x.amax((2, 3))] if self.concat_pool else []
            x = torch.cat([*largest, mean], 1)
        else:
            x = self.class_token(x)
        x = self.head(x)
        if self.y_range:
            low, high = self.y_range
            x = x.sigmoid() * (high - low) + low
        return x


def simple_cnn(channels, kernel_sizes, strides, batch_norm, last_relu):
    count = len(channels) - 1
    layers = []
    for i in range(count):
        kernel = kernel_sizes[i] if kernel_sizes else 3
        stride = strides[i] if strides else 2
        is_last = i + 1 == count
        layers.append(
            torch.nn.Conv2d(
                channels[i], channels[i + 1], kernel, stride, (kernel - 1) // 2
            )
        )
        if not is_last or last_relu:
            layers.append(torch.nn.ReLU())
        if batch_norm and not is_last:
            layers.append(torch.nn.BatchNorm2d(channels[i + 1]))
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers)


def nearest(x):
    """Rounds halves up, unlike Python's round."""
    return math.floor(x + 0.5)


class Preprocessing:
    """Turns an image file into the model's input, as Tern does."""

    def __init__(self, what):
        self.what = what
        self.size = what["height"], what["width"]

    def __call__(self, path):
        image = Image.open(path)
        turned = self.what["exif_orientation"]
        if turned and image.getexif().get(0x0112, 1) >= 5:
            stored = image.size
        else:
            stored = image.size[::-1]
        size, first = self.view(stored)
        if image.format == "JPEG":
            # Decode at a half, a quarter or an eighth of the size if possible.
            factor = min(s / r for s, r in zip(stored, size)) + 1e-6
            enough = ((40, 8), (24, 4), (16, 2), (0, 1))
            by = next(d for least, d in enough if int(factor) >= least)
            image.draft(None, (image.width // by, image.height // by))
        if turned:
            image = ImageOps.exif_transpose(image)
        image = image.convert("L" if self.what["channels"] == 1 else "RGB")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        pixels = pixels.view(image.height, image.width, -1).permute(2, 0, 1)
        # Matches Pillow's resize except for its intermediate rounding.
        pixels = F.interpolate(
            pixels[None].double(), size, mode="bilinear", antialias=True
        )
        pixels = self.crop((pixels[0] + 0.5).floor().float(), first)
        mean = torch.tensor(self.what["mean"]).view(-1, 1, 1)
        stddev = torch.tensor(self.what["stddev"]).view(-1, 1, 1)
        return (pixels / 255 - mean) / stddev

    def view(self, source):
        """Returns the size after resizing, and the position of the crop."""
        target, resize = self.size, self.what["resize"]
        if resize == "exact" and tuple(source) != tuple(target):
            raise SystemExit(
                f"The image is {source[0]} x {source[1]} pixels; the model "
                f"takes {target[0]} x {target[1]} alone."
            )
        ratios = [t / s for t, s in zip(target, source)]
        if resize in ("squish", "exact"):
            size = list(target)
        elif resize == "none":
            size = list(source)
        else:
            ratio = min(ratios) if resize == "pad" else max(ratios)
            size = [max(1, nearest(s * ratio)) for s in source]
            if resize in ("center_crop", "centre_crop"):
                ratio *= 1 + self.what["margin"]
                size = [
                    max(t, nearest(s * ratio)) for s, t in zip(source, target)
                ]
        room = [r - t for r, t in zip(size, target)]
        return size, [nearest(r / 2) if r >= 0 else r // 2 for r in room]

    def crop(self, pixels, first):
        """Crops to the target from `first` on, padded outside the image."""
        for axis, target in enumerate(self.size):
            size = pixels.shape[1 + axis]
            at = torch.arange(target) + first[axis]
            outside = (at < 0) | (at >= size)
            if self.what["padding"] == "reflection":
                at = at % (2 * size)
                at = torch.where(at < size, at, 2 * size - 1 - at)
            pixels = pixels.index_select(1 + axis, at.clamp(0, size - 1))
            if self.what["padding"] == "zeros":
                pixels.index_fill_(1 + axis, outside.nonzero().flatten(), 0)
        return pixels


class Predictor:
    """Like Tern's Predictor: has `classes` and `output`, predicts images."""

    def __init__(self, path, trusted=False):
        state, metadata = read_safetensors(path)
        self.classes = json.loads(metadata["tern.classes"])
        name = metadata["tern.architecture"]
        if name == "torchscript":
            self.model = load_graph(state, trusted)
        else:
            self.model = build_model(name, json.loads(metadata["tern.options"]))
            self.model.load_state_dict(state)
        self.model.eval()
        self.activation = ACTIVATIONS[metadata["tern.activation"]]
        self.output = json.loads(metadata["tern.outputs"])[0]
        what = metadata.get("tern.preprocessing")
        self.preprocessing = Preprocessing(json.loads(what)) if what else None

    @torch.inference_mode()
    def predict(self, paths):
        """Returns the activated outputs for image files, [N, classes]."""
        if self.preprocessing is None:
            raise SystemExit("The file says not how images become inputs.")
        batch = torch.stack([self.preprocessing(path) for path in paths])
        return self.activation(self.model(batch))

    def text(self, pred):
        """Describes a prediction: its class, the labels above the threshold,
        numbers with their names, or the fraction of each class in a mask."""
        kind, names = self.output["kind"], self.output["names"]
        above = pred > self.output["threshold"]
        if kind == "number" and pred.dim() > 1:
            return " x ".join(str(size) for size in pred.shape)
        if kind == "number":
            values = [f"{value:.4g}" for value in pred.reshape(-1).tolist()]
            known = [f"{name} " for name in names] + [""] * len(values)
            return ", ".join(map("".join, zip(known, values)))
        if pred.dim() > 1:
            if self.output["activation"] == "sigmoid" and len(pred) > 1:
                shares = above.double().mean((1, 2))
            else:
                mask = pred.argmax(0) if len(pred) > 1 else above[0].long()
                counts = mask.flatten().bincount(minlength=max(len(pred), 2))
                shares = counts / mask.numel()
            order = shares.argsort(descending=True, stable=True)
            values = [(i, shares[i]) for i in order.tolist() if shares[i] > 0]
        elif kind == "multi_category":
            values = [(i, pred[i]) for i in above.nonzero()[:, 0].tolist()]
        elif len(pred) == 1:  # probability of the second of two classes
            second = int(above)
            values = [(second, pred[0] if second else 1 - pred[0])]
        else:
            values = [(int(pred.argmax()), pred.max())]
        words = [
            f"{names[i] if i < len(names) else f'class {i}'} ({value:.4f})"
            for i, value in values
        ]
        return ", ".join(words) or "none"


def main():
    trusted = sys.argv[1:2] == ["--trusted"]
    file = pathlib.Path(__file__).with_suffix(".safetensors")
    predictor = Predictor(file, trusted)
    for path in sys.argv[1 + trusted :]:
        print(f"{path}: {predictor.text(predictor.predict([path])[0])}")


if __name__ == "__main__":
    main()
