"""Python's side of the comparisons `vision_*`: the work of vision_timed.cpp."""
import argparse
import itertools
import json
import pathlib
import resource
import time

import torch


def torchvision_loader(folder, decode, batch_size=64):
    """Batches by torchvision v2, from files that torchvision or PIL decodes."""
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    steps = [
        v2.RandomResizedCrop(128, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
    options = {}
    if decode == "torchvision":
        options["loader"] = lambda path: decode_image(
            path, mode=ImageReadMode.RGB
        )
    else:
        steps.insert(0, v2.PILToTensor())
    images = ImageFolder(
        f"{folder}/train", transform=v2.Compose(steps), **options
    )
    return torch.utils.data.DataLoader(
        images,
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        persistent_workers=True,
    )


def fastai_loader(folder):
    from fastai.vision.all import (
        Flip,
        ImageDataLoaders,
        Normalize,
        RandomResizedCrop,
        imagenet_stats,
    )

    return ImageDataLoaders.from_folder(
        folder,
        valid="validation",
        bs=64,
        num_workers=2,
        item_tfms=RandomResizedCrop(128, min_scale=0.08),
        batch_tfms=[Flip(), Normalize.from_stats(*imagenet_stats)],
    ).train


def load(loader):
    """Seconds for 1000 images, measured in the second epoch."""
    for _ in range(2):
        begin, images = time.perf_counter(), 0
        for batch in loader:
            images += len(batch[0])
        seconds = time.perf_counter() - begin
    return seconds * 1000 / images


def train(folder):
    """Seconds for 1000 images of training ResNet-18, after a few batches."""
    from torchvision.models import resnet18

    batch_size, warm_up, batches = 32, 4, 20
    model = resnet18(num_classes=10).to(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = torchvision_loader(folder, "torchvision", batch_size)
    some = itertools.islice(loader, warm_up + batches)
    for number, (images, labels) in enumerate(some):
        if number == warm_up:
            begin = time.perf_counter()
        images = images.contiguous(memory_format=torch.channels_last)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.perf_counter() - begin) * 1000 / (batch_size * batches)


def shrunk(folder):
    """Copies with a shorter side of 160 pixels, as in Tern's pack."""
    from PIL import Image, ImageOps

    copies = pathlib.Path("shrunk")
    for file in pathlib.Path(folder).glob("*/*/*.*"):
        copy = copies / file.relative_to(folder)
        if copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        image = ImageOps.exif_transpose(Image.open(file)).convert("RGB")
        scale = 160 / min(image.size)
        size = [max(160, round(side * scale)) for side in image.size]
        image.resize(size, Image.BILINEAR).save(copy, quality=95)
    return copies


def recipe(folder, epochs, seed):
    """The recipe of docs/vision.md with fastai's components, in fp32: its mixed
    precision is for GPUs only."""
    from fastai.vision.all import (
        Brightness,
        Contrast,
        Flip,
        ImageDataLoaders,
        LabelSmoothingCrossEntropy,
        Normalize,
        RandomResizedCrop,
        accuracy,
        imagenet_stats,
        resnet18,
        set_seed,
        vision_learner,
    )

    begin = time.perf_counter()
    set_seed(seed)
    data = ImageDataLoaders.from_folder(
        shrunk(folder),
        valid="validation",
        bs=32,
        num_workers=2,
        item_tfms=RandomResizedCrop(128, min_scale=0.35),
        batch_tfms=[
            Flip(),
            Brightness(),
            Contrast(),
            Normalize.from_stats(*imagenet_stats),
        ],
    )
    learn = vision_learner(
        data,
        resnet18,
        pretrained=False,
        loss_func=LabelSmoothingCrossEntropy(),
        metrics=accuracy,
        wd_bn_bias=False,
    )
    learn.model = learn.model.to(memory_format=torch.channels_last)
    learn.fit_one_cycle(epochs, 4e-3)
    return {
        "seconds": time.perf_counter() - begin,
        "accuracy": float(learn.validate()[1]),
    }


def peak_megabytes():
    """Peak memory of this process and of its largest worker."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024


def augment():
    """The closest equivalent of fastai's get_transforms, image by image."""
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.RandomPerspective(0.2, p=0.75),
            v2.RandomAffine(10, scale=(1, 1.1)),
            v2.ColorJitter(brightness=0.2, contrast=0.2),
        ]
    )
    images = torch.randint(256, (64, 3, 224, 224), dtype=torch.uint8)
    rounds = 5
    for round_ in range(-2, rounds):
        if round_ == 0:
            begin = time.perf_counter()
        torch.stack([transform(image) for image in images])
    return (time.perf_counter() - begin) / rounds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", required=True)
    parser.add_argument("--peer", default="torchvision")
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    if arguments.job == "recipe":
        report = recipe(arguments.data, arguments.epochs, arguments.seed)
    elif arguments.job == "augment":
        report = {"seconds": augment()}
    elif arguments.job == "train":
        report = {"seconds": train(arguments.data)}
    elif arguments.peer == "fastai":
        report = {"seconds": load(fastai_loader(arguments.data))}
    else:
        loader = torchvision_loader(arguments.data, arguments.peer)
        report = {"seconds": load(loader)}
    with open(arguments.json, "w") as file:
        json.dump(report | {"peak_megabytes": peak_megabytes()}, file)


if __name__ == "__main__":
    main()
