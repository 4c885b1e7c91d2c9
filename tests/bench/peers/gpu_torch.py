"""The jobs of tests/bench/gpu_timed.cpp in Python, also line by line:

    echo go | gpu_torch.py --job mlp

Requires only torch; the networks are written out."""
import argparse
import contextlib
import copy
import gc
import json
import os
import pathlib
import shutil
import statistics
import sys
import sysconfig
import time

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "vision" / "models" / "matting"))
from matting_net import MattingBase, MattingRefine  # noqa: E402

class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x):
        return nn.functional.relu(
            self.path(x) + self.shortcut(x), inplace=True
        )


class BasicBlock(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride, bias=False),
                nn.BatchNorm2d(width),
            )

    forward = Bottleneck.forward


def resnet_net(block=Bottleneck, widen=4, depths=(3, 4, 6, 3)):
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for layer, blocks in enumerate(depths):
        width = 64 << layer
        for i in range(blocks):
            stride = 2 if layer > 0 and i == 0 else 1
            layers.append(block(inputs, width, stride))
            inputs = widen * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers)


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def give_back_unused_memory(device):
    gc.collect()  # networks contain reference cycles
    if device.type == "cuda":
        torch.cuda.empty_cache()


def graph_of(step):
    """A whole training step as a CUDA graph, as in PyTorch's notes on CUDA graphs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    def replay():
        graph.replay()
        return loss

    return replay


def compiled(net, device):
    if device.type == "cpu":
        # Stops before generating kernels, which takes minutes on a CPU.
        return torch.compile(net, backend="aot_eager")
    compilers = [os.environ.get("CC"), "gcc", "clang"]
    if not any(name and shutil.which(name) for name in compilers):
        sys.exit(
            "torch.compile needs a C compiler, and there is none: install gcc, "
            "or set CC."
        )
    header = pathlib.Path(sysconfig.get_config_var("INCLUDEPY")) / "Python.h"
    if not header.exists():
        sys.exit(
            f"torch.compile needs {header}, which is not there: install "
            "Python's headers (python3-dev)."
        )
    return torch.compile(net)


def train(arguments, make_net, x, y, loss_function, make_optimizer, steps):
    """With `with_fp32`, also reports the memory and time saved relative to the
    same job in fp32."""
    work = make_net, x, y, loss_function, make_optimizer
    numbers = train_once(arguments, *work, steps)
    if arguments.with_fp32:
        give_back_unused_memory(arguments.device)
        fp32 = copy.copy(arguments)
        fp32.precision, fp32.graph = "fp32", 0
        whole = train_once(fp32, *work, steps)
        if whole["peak_megabytes"]:
            saved = 1 - numbers["peak_megabytes"] / whole["peak_megabytes"]
            numbers["memory_saved"] = saved
        times = whole["step_seconds"] / numbers["step_seconds"]
        numbers["times_fp32"] = times
    return numbers


def train_once(arguments, make_net, x, y, loss_function, make_optimizer, steps):
    """Autocast and GradScaler as in PyTorch's recipes. `x` is the net's only
    input, or a tuple of several."""
    device, precision = arguments.device, arguments.precision
    net = make_net().to(device)
    inputs = [t.to(device) for t in (x if isinstance(x, tuple) else (x,))]
    y = y.to(device)
    if inputs[0].dim() == 4:
        net = net.to(memory_format=torch.channels_last)
        inputs = [t.to(memory_format=torch.channels_last) for t in inputs]
    optimizer = make_optimizer(net.parameters())
    if arguments.compile:
        net = compiled(net, device)
    uses_16_bits = precision in ("amp", "fp16", "bf16")
    is_half = precision in ("amp", "fp16") and device.type == "cuda"
    dtype = torch.float16 if is_half else torch.bfloat16
    scaler = torch.amp.GradScaler(device.type, enabled=is_half)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def one_step():
        with (
            torch.autocast(device.type, dtype)
            if uses_16_bits
            else contextlib.nullcontext()
        ):
            loss = loss_function(net(*inputs), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    make_step = one_step
    if arguments.graph and device.type == "cuda":
        make_step = graph_of(one_step)
    for step in range(arguments.warm_up + steps):
        if step == arguments.warm_up:
            wait_for(device)
            begin = time.perf_counter()
        loss = make_step()
    wait_for(device)
    seconds = (time.perf_counter() - begin) / steps
    peak = (
        torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    )
    return {
        "step_seconds": seconds,
        "peak_megabytes": peak / 1e6,
        "loss": loss.item(),
    }


def adamw(arguments):
    """With fastai's defaults, which Tern shares."""
    return lambda p: torch.optim.AdamW(
        p,
        lr=3e-3,
        betas=(0.9, 0.99),
        weight_decay=1e-2,
        fused=True,
        capturable=bool(arguments.graph),
    )


def resnet(arguments, block, widen, depths):
    n, side = (2, 32) if arguments.is_small else (256, 224)
    if arguments.is_small:
        depths = (1, 1, 1, 1)
    return train(
        arguments,
        lambda: resnet_net(block, widen, depths),
        torch.randn(n, 3, side, side),
        torch.randint(1000, (n,)),
        nn.functional.cross_entropy,
        adamw(arguments),
        arguments.steps,
    )


def digits(arguments, make_net, *sample):
    return train(
        arguments,
        make_net,
        torch.randn(64, *sample),
        torch.randint(10, (64,)),
        nn.functional.cross_entropy,
        adamw(arguments),
        10 * arguments.steps,
    )


def mlp_net():
    return nn.Sequential(
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def mnist_cnn(arguments):
    def net():
        layers, channels = [], 1
        for outputs in 16, 32, 10:
            convolution = nn.Conv2d(channels, outputs, 3, 2, 1)
            layers.extend([convolution, nn.ReLU(inplace=True)])
            channels = outputs
        layers[-1:] = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers)

    return digits(arguments, net, 1, 28, 28)


def checkerboard(arguments):
    def net():
        layers, channels = [], 2
        for _ in range(3):
            convolution = nn.Conv2d(channels, 256, 1)
            layers.extend([convolution, nn.BatchNorm2d(256), nn.ReLU()])
            channels = 256
        return nn.Sequential(*layers, nn.Conv2d(256, 1, 1))

    side = 16 if arguments.is_small else 512
    squares = torch.arange(side) * 16 // side
    board = (squares[:, None] + squares) % 2
    ruler = torch.linspace(-1, 1, side)
    coordinates = torch.stack(torch.meshgrid(ruler, ruler, indexing="ij"))
    return train(
        arguments,
        net,
        coordinates[None],
        board[None, None].float(),
        nn.functional.mse_loss,
        lambda p: torch.optim.Adam(p, lr=3e-3, fused=True),
        arguments.steps,
    )


def matting_backbone(arguments):
    return "mobilenet_v2" if arguments.is_small else "resnet50"


def matting(arguments, make_net, n, side):
    if arguments.is_small:
        n, side = 2, 32
    src, bgr = torch.rand(n, 3, side, side), torch.rand(n, 3, side, side)

    def loss_of(outputs, y):
        loss = nn.functional.l1_loss(outputs[0], y[:, :1])
        loss = loss + nn.functional.l1_loss(outputs[1], y)
        for more in outputs[2:]:
            if more.requires_grad:
                loss = loss + more.square().mean()
        return loss

    return train(
        arguments,
        make_net,
        (src, bgr),
        src,
        loss_of,
        lambda p: torch.optim.Adam(p, lr=3e-3, fused=True),
        arguments.steps,
    )


def adam(arguments, shapes, **how):
    """Adam on fp32 weights through GradScaler, and autocast's casts of weights to
    half and of gradients back."""
    device = arguments.device
    params = [
        torch.randn(shape, device=device, requires_grad=True)
        for shape in shapes
    ]
    optimizer = torch.optim.Adam(params, lr=1e-3, **how)
    scaler = torch.amp.GradScaler(device.type)
    scaler.scale(torch.ones((), device=device))
    grads = [torch.randn_like(p).half() for p in params]
    times = []
    for step in range(-2, arguments.steps):
        wait_for(device)
        begin = time.perf_counter()
        for p, g in zip(params, grads):
            p.grad = g.float()
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            [p.half() for p in params]
        wait_for(device)
        if step >= 0:
            times.append(time.perf_counter() - begin)
    return {"step_seconds": statistics.median(times)}


def blocks(arguments):
    """Shapes with 100 million parameters in total."""
    return [10_000 if arguments.is_small else 1_000_000] * 100


class DecodedImages(torch.utils.data.Dataset):
    def __init__(self, size):
        self.images = torch.randint(256, (64, 3, 224, 224), dtype=torch.uint8)
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return self.images[i % 64], i % 64


def feed(arguments):
    n = 16 if arguments.is_small else 256
    device = arguments.device
    loader = torch.utils.data.DataLoader(
        DecodedImages(n * (arguments.warm_up + arguments.steps)),
        batch_size=n,
        num_workers=4,
        pin_memory=device.type == "cuda",
    )
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)
    for i, (images, _) in enumerate(loader):
        floats = images.to(device, non_blocking=True).float() / 255
        floats = ((floats - mean) / std).half()
        if i + 1 == arguments.warm_up:
            wait_for(device)
            begin = time.perf_counter()
    wait_for(device)
    return {
        "image_seconds": (time.perf_counter() - begin)
        / (n * arguments.steps)
    }


def augment(arguments):
    """A different change for each image, through the functions of torchvision's transforms."""
    n, side = (8, 32) if arguments.is_small else (256, 224)
    device = arguments.device
    images = torch.randint(
        256, (n, 3, side, side), dtype=torch.uint8, device=device
    )
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], device=device).view(3, 1, 1)

    def between(low, high):
        return torch.empty(n).uniform_(low, high)

    times = []
    for step in range(-2, arguments.steps):
        begin = time.perf_counter()
        angle, zoom = between(-0.2, 0.2), between(0.9, 1.1)
        flip = torch.where(torch.rand(n) < 0.5, -1.0, 1.0)
        cos, sin = zoom * angle.cos(), zoom * angle.sin()
        shifts = between(-20 / side, 20 / side), between(-20 / side, 20 / side)
        theta = torch.stack(
            [flip * cos, -sin, shifts[0], flip * sin, cos, shifts[1]], 1
        ).view(n, 2, 3)
        lit = torch.stack([between(0.8, 1.25), between(-0.1, 0.1)])
        theta = theta.to(device, non_blocking=True)
        lit = lit.view(2, n, 1, 1, 1).to(device, non_blocking=True)
        grid = nn.functional.affine_grid(
            theta, images.shape, align_corners=False
        )
        x = nn.functional.grid_sample(
            images.float() / 255,
            grid,
            padding_mode="reflection",
            align_corners=False,
        )
        x = ((x - 0.5) * lit[0] + 0.5 + lit[1]).clamp(0, 1)
        x = ((x - mean) / std).to(
            torch.float16, memory_format=torch.channels_last
        )
        wait_for(device)
        if step >= 0:
            times.append(time.perf_counter() - begin)
    return {"step_seconds": statistics.median(times)}


def augment_v2(arguments, is_together):
    """By torchvision.transforms.v2, which draws once per call: for each image, or
    one change for all images, which is less work than Tern's."""
    from torchvision.transforms import v2

    n, side = (8, 32) if arguments.is_small else (256, 224)
    images = torch.randint(
        256,
        (n, 3, side, side),
        dtype=torch.uint8,
        device=arguments.device,
    )
    transform = v2.Compose(
        [
            v2.RandomAffine(
                degrees=11.5,
                translate=(10 / side, 10 / side),
                scale=(0.9, 1.1),
                interpolation=v2.InterpolationMode.BILINEAR,
            ),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=(0.9, 1.1), contrast=(0.8, 1.25)),
            v2.ToDtype(torch.float16, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    times = []
    for step in range(-2, arguments.steps):
        begin = time.perf_counter()
        if is_together:
            x = transform(images)
        else:
            x = torch.stack([transform(image) for image in images])
        x.to(memory_format=torch.channels_last)
        wait_for(arguments.device)
        if step >= 0:
            times.append(time.perf_counter() - begin)
    return {"step_seconds": statistics.median(times)}


def main():
    jobs = {
        "augment": augment,
        "augment_v2": lambda a: augment_v2(a, False),
        "augment_v2_together": lambda a: augment_v2(a, True),
        "resnet18": lambda a: resnet(a, BasicBlock, 1, (2, 2, 2, 2)),
        "resnet50": lambda a: resnet(a, Bottleneck, 4, (3, 4, 6, 3)),
        "mnist_cnn": mnist_cnn,
        "mlp": lambda a: digits(a, mlp_net, 784),
        "checkerboard": checkerboard,
        "matting_base": lambda a: matting(
            a, lambda: MattingBase(matting_backbone(a)), 8, 512
        ),
        "matting_refine": lambda a: matting(
            a,
            lambda: MattingRefine(
                matting_backbone(a), sample_pixels=512 if a.is_small else 80_000
            ),
            1,
            2048,
        ),
        "adam_fused": lambda a: adam(a, blocks(a), fused=True),
        "adam_foreach": lambda a: adam(a, blocks(a), foreach=True),
        "adam_resnet50": lambda a: adam(
            a, [p.shape for p in resnet_net().parameters()], fused=True
        ),
        "feed": feed,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True, choices=jobs)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--device", type=torch.device, default="cuda")
    parser.add_argument("--steps", type=int, help="20; on a CPU 1")
    parser.add_argument("--graph", type=int, default=0)
    parser.add_argument("--compile", type=int, default=0)
    parser.add_argument("--with-fp32", type=int, default=0)
    arguments = parser.parse_args()
    arguments.is_small = arguments.device.type == "cpu"
    arguments.warm_up = 1 if arguments.is_small else 5
    arguments.steps = arguments.steps or (1 if arguments.is_small else 20)
    is_tf32 = arguments.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = is_tf32
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.zeros(1, device=arguments.device)  # initializes CUDA
    print("ready", flush=True)
    for _ in sys.stdin:
        torch.manual_seed(1)
        numbers = jobs[arguments.job](arguments)
        give_back_unused_memory(arguments.device)
        print(json.dumps(numbers), flush=True)


if __name__ == "__main__":
    main()
