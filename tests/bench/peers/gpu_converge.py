"""Training runs of ./dev gpu to the end: classifiers in each precision with three
seeds, and the checkerboard with the images that its nets learned.

    gpu_converge.py FILE    writes the photos of TERN_DATA/clothing at 64 px to FILE
                            (needs Pillow); TERN_CLOTHING names the file on a machine
                            without Pillow
"""
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import sys
import tarfile
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from types import SimpleNamespace

from programs import Failed, running
from run import facts, write

PRECISIONS = ["fp32", "fp16_static", "fp16", "bf16", "amp"]
SEEDS = [1, 2, 3]


#
# ---- Files: safetensors, IDX and PNG; each takes a few lines ----


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        offsets = [offset, offset + len(data)]
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=offsets)
        offset = offsets[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def read_floats(path, name):
    """Shape and numbers of an F32 tensor."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + size])[name]
    begin, end = (8 + size + offset for offset in entry["data_offsets"])
    return entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])


def write_png(path, width, gray):
    """gray: the bytes, row by row."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data))
            + kind
            + data
            + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = [gray[i : i + width] for i in range(0, len(gray), width)]
    size = struct.pack(">IIBBBBB", width, len(rows), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    png = chunk(b"IHDR", size) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    pathlib.Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + png)


def mnist_file(path):
    """From the four files of TERN_DATA/mnist."""
    folder = pathlib.Path(os.environ.get("TERN_DATA", "")) / "mnist"
    tensors = {}
    for prefix, name in ("", "train"), ("valid_", "t10k"):
        images = gzip.decompress(
            (folder / f"{name}-images-idx3-ubyte.gz").read_bytes()
        )
        labels = gzip.decompress(
            (folder / f"{name}-labels-idx1-ubyte.gz").read_bytes()
        )[8:]
        shape = [*struct.unpack(">III", images[4:16]), 1]
        tensors[f"{prefix}images"] = "U8", shape, images[16:]
        wide = struct.pack(f"<{len(labels)}q", *labels)
        tensors[f"{prefix}labels"] = "I64", [len(labels)], wide
    write_safetensors(path, tensors)


def clothing_file(path):
    """The file TERN_CLOTHING, or created from TERN_DATA by Pillow: the shorter side
    resized to 64 pixels, then center-cropped."""
    ready = os.environ.get("TERN_CLOTHING")
    if ready:
        shutil.copy(ready, path)
        return
    from PIL import Image, ImageOps

    side, images, labels, classes = 64, {}, {}, []
    archive = pathlib.Path(os.environ.get("TERN_DATA", "")) / "clothing"
    with tarfile.open(archive / "clothing.tar") as tar:
        members = [m for m in tar.getmembers() if m.isfile()]
        classes = sorted({m.name.split("/")[1] for m in members})
        random.Random(1).shuffle(members)  # so that the first members cover all classes
        for member in members:
            split, label, _ = member.name.split("/")
            image = Image.open(io.BytesIO(tar.extractfile(member).read()))
            image = ImageOps.fit(image.convert("RGB"), (side, side))
            images.setdefault(split, []).append(image.tobytes())
            labels.setdefault(split, []).append(classes.index(label))
    tensors = {}
    for prefix, split in ("", "train"), ("valid_", "validation"):
        count = len(labels[split])
        shape = [count, side, side, 3]
        tensors[f"{prefix}images"] = "U8", shape, b"".join(images[split])
        wide = struct.pack(f"<{count}q", *labels[split])
        tensors[f"{prefix}labels"] = "I64", [count], wide
    write_safetensors(path, tensors)


#
# ---- Training runs ----


@dataclass
class Convergence:
    """A classifier in each precision, with each seed."""

    name: str
    title: str
    epochs: int
    make_file: object  # writes the data
    goal: str = "accuracies within the spread of fp32's"
    tern_program: str = "tests/bench/gpu_timed"
    peer: str = "torch"  # the package whose version the page shows
    is_long: bool = False

    def run(self, arguments, command, seconds):
        """All runs at the same time: accuracies do not depend on other load, and
        one run uses only a small part of the GPU."""
        program = str(arguments.build.resolve() / self.tern_program)
        end = time.monotonic() + seconds
        with tempfile.TemporaryDirectory() as folder:
            data = pathlib.Path(folder) / "data.safetensors"
            self.make_file(data)
            commands = {
                f"{precision}_{seed}": [program, "--job", "converge"]
                + ["--data", str(data), "--device", arguments.device]
                + ["--precision", precision, "--seed", str(seed)]
                + ["--steps", str(self.epochs)]
                for precision in PRECISIONS
                for seed in SEEDS
            }
            left = end - time.monotonic()
            reports, failed = train_together(self.name, commands, left)
        results = {
            precision: [
                reports[f"{precision}_{seed}"]
                for seed in SEEDS
                if f"{precision}_{seed}" in reports
            ]
            for precision in PRECISIONS
        }
        if reports:
            lines = [
                f"### {self.title}",
                "",
                facts_of(self.name, len(SEEDS), "seeds", command, arguments),
                "",
                *convergence_table(results),
            ]
            print("\n".join(lines))
            write(f"peers {self.name}", lines, arguments.page, command)
        if failed:
            raise Failed("; ".join(failed))


def train_together(name, commands, seconds):
    """commands: name of a run -> command. Returns the reports of successful runs by
    name, and a line for each failed run; prints them as they end."""
    reports, failed = {}, []
    # The programs end before the pool waits for the threads that read from them.
    with (
        ThreadPoolExecutor(len(commands)) as pool,
        running(commands, seconds, {"OMP_NUM_THREADS": "1"}) as programs,
    ):
        waiting = {
            pool.submit(program.measure): training
            for training, program in programs.items()
        }
        for future in as_completed(waiting):
            training = waiting[future]
            try:
                report = reports[training] = future.result()
            except Failed as error:
                failed.append(f"{training}: {error}")
                print(f"{name} {failed[-1]}")
            else:
                numbers = [f"{k} {v:.4g}" for k, v in report.items()]
                print(f"{name} {training}: {', '.join(numbers)}")
    return reports, failed


def convergence_table(results):
    """"Within" means not below fp32's mean by more than the range of fp32's
    accuracies. Empty if all runs in fp32, or in this precision, failed."""
    fp32 = [report["accuracy"] for report in results["fp32"]]
    least = statistics.mean(fp32) - (max(fp32) - min(fp32)) if fp32 else None
    lines = [
        "| precision | accuracy, mean (worst to best) | within fp32's spread "
        "| loss scale at each tenth of the run, first seed |",
        "|---|---|---|---|",
    ]
    for precision, reports in results.items():
        if not reports:
            lines.append(f"| {precision} | failed | | |")
            continue
        accuracies = [report["accuracy"] for report in reports]
        mean = statistics.mean(accuracies)
        within = "" if least is None else "yes" if mean >= least else "NO"
        scales = [
            f"{value:g}"
            for key, value in sorted(reports[0].items())
            if key.startswith("scale_")
        ]
        lines.append(
            f"| {precision} | {mean:.4f} ({min(accuracies):.4f} to "
            f"{max(accuracies):.4f}) | {within} | {', '.join(scales)} |"
        )
    return lines


@dataclass
class Checkerboard:
    """The experiment of examples/checkerboard.cpp."""

    name: str = "checkerboard_pictures"
    title: str = (
        "The checkerboard net at 512 x 512, 500 steps, fp32 and mixed: "
        "learned images"
    )
    goal: str = "both images look alike"
    tern_program: str = "tests/bench/gpu_timed"
    peer: str = "torch"  # the package whose version the page shows
    is_long: bool = False

    def run(self, arguments, command, seconds):
        """Runs one after the other, because their times count."""
        program = str(arguments.build.resolve() / self.tern_program)
        end = time.monotonic() + seconds
        steps = 10 if arguments.device == "cpu" else 500
        rows, images = [], []
        with tempfile.TemporaryDirectory() as folder:
            scratch = pathlib.Path(folder)
            for precision in "fp32", "fp16", "amp":
                file = scratch / "picture.safetensors"
                training = (
                    [program, "--job", "checkerboard", "--picture", str(file)]
                    + ["--precision", precision, "--device", arguments.device]
                    + ["--steps", str(steps)]
                )
                left = end - time.monotonic()
                with running({precision: training}, left) as programs:
                    report = programs[precision].measure()
                shape, numbers = read_floats(file, "picture")
                gray = bytes(
                    min(255, max(0, round(255 * number))) for number in numbers
                )
                png = f"gpu_checkerboard_{precision}.png"
                write_png(arguments.page.parent / png, shape[-1], gray)
                images.append(f"![{precision}]({png})")
                rows.append(
                    f"| {precision} | {1e3 * report['step_seconds']:.3f} ms | "
                    f"{report['peak_megabytes']:.0f} MB | {report['loss']:.5f} |"
                )
        lines = [
            f"### {self.title}",
            "",
            facts_of(self.name, 1, "run", command, arguments),
            "",
            "| precision | step | memory | final loss |",
            "|---|---|---|---|",
            *rows,
            "",
            " ".join(images),
        ]
        print("\n".join(lines))
        write(f"peers {self.name}", lines, arguments.page, command)


def facts_of(name, count, what, command, arguments):
    one = SimpleNamespace(peer="torch", name=name, options=[])
    text = facts(one, count, command, arguments.build)
    return text[: text.index("Median of")] + f"{count} {what}: `{command} {name}`"


TRAININGS = [
    Convergence(
        "converge_mnist",
        "MNIST, ten digits, a CNN (16-32-10), one cycle of 3 epochs at 4e-3, "
        "batch 64, three seeds",
        3,
        mnist_file,
    ),
    Convergence(
        "converge_clothing",
        "Photos of clothes at 64 px, ResNet-18 from scratch, one "
        "cycle of 8 epochs at 4e-3, batch 64, three seeds",
        8,
        clothing_file,
    ),
    Checkerboard(),
]

if __name__ == "__main__":
    clothing_file(sys.argv[1])
