"""./dev bench peers: compares Tern with Python libraries on the same work.

Both programs run in alternating rounds, so that other load on the machine affects
both. Each writes its numbers to a given JSON file; the medians go into
docs/benchmarks.md, between the markers of the comparison.
"""
import argparse
import contextlib
import fnmatch
import functools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


@dataclass
class Row:
    key: str  # in the JSON of both programs; process_seconds is measured here
    what: str
    goal: float = 0  # goal for Tern's speedup; 0: no goal
    is_time: bool = True
    unit: str = "s"  # for ms and us, the JSON still has seconds


@dataclass
class Comparison:
    name: str
    title: str
    peer: str  # its name on PyPI
    peer_program: str  # in this folder
    tern_program: str  # in the build folder
    archive: str = ""  # in TERN_DATA; both programs get --data with its content
    options: list = field(default_factory=list)  # of both programs
    tern_options: list = field(default_factory=list)
    peer_options: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    # Number of machines and megabits/s of a network; both programs run on each machine. See
    # tests/support/network.sh.
    network: tuple = ()
    is_warm: bool = False  # each process warms itself up, so no round does
    is_long: bool = False  # as is_warm, and runs only when named
    has_cpu_time: bool = False  # both programs support --cpu-time
    needs: str = ""  # an instruction set of INSTRUCTIONS


# From the first message of a step to the last reply, by c10d::Logger's clocks.
TRAVEL = [
    Row("travel_seconds", "gradient all-reduce"),
    Row("unhidden_seconds", "all-reduce not overlapped with backward", goal=1),
    Row("hidden_share", "fraction overlapped with backward", is_time=False),
]

# Instruction sets that speed up computation, and their names in /proc/cpuinfo.
INSTRUCTIONS = {
    "AVX2": "avx2",
    "AVX-512": "avx512f",
    "AVX512-BF16": "avx512_bf16",
    "AMX": "amx_bf16",
}

# For `deploy_*`: name, package, and description.
DEPLOY_PEERS = [
    ("onnxruntime", "onnxruntime", "the same network exported as ONNX"),
    ("opencv", "opencv-python-headless", "the same network in cv::dnn"),
    ("torchvision", "torchvision", "PyTorch, channels-last"),
]

# To add a comparison, add an entry here and a Python file in this folder.
COMPARISONS = [
    Comparison(
        name="mnist",
        title="MNIST_SAMPLE from PNG files, `simple_cnn({3, 16, 16, 2})`, "
        "batch 64, one epoch with validation, fp32",
        peer="fastai",
        peer_program="mnist_fastai.py",
        tern_program="tests/bench/mnist_timed",
        tern_options=["--precision", "fp32", "--epochs", "1"],
        archive="mnist_sample.tgz",
        rows=[
            Row("epoch_seconds", "the epoch", goal=8),
            Row("process_seconds", "the whole process", goal=8),
            Row("first_batch_seconds", "start to first batch"),
            Row("accuracy", "accuracy", is_time=False),
        ],
    ),
    Comparison(
        name="weights",
        title="A safetensors file of 100 tensors and 100 MB in the page "
        "cache; every value read is used once",
        peer="safetensors",
        peer_program="weights_safetensors.py",
        tern_program="tests/bench/weights_timed",
        rows=[
            Row("read_seconds", "read into memory", goal=1),
            Row("mapped_seconds", "memory-mapped", goal=1),
            Row("open_seconds", "memory-mapped, not read"),
            Row("write_seconds", "written, not synced"),
        ],
    ),
    *(
        Comparison(
            name=f"amp_{job}",
            title=title,
            peer="torch",
            peer_program="amp_torch.py",
            tern_program="tests/bench/amp_timed",
            options=["--job", job],
            rows=[Row("step_seconds", "the step", goal=goal)],
        )
        for job, title, goal in [
            (
                "resnet18",
                "Training step of ResNet-18 in bfloat16 autocast with "
                "GradScaler, 16 images of 128 px, fused SGD",
                1,
            ),
            (
                "checkerboard",
                "Training step of the checkerboard net (1x1 convolutions "
                "2-256-256-256-1 with BatchNorm) in bfloat16 autocast with "
                "GradScaler, 256 x 256, fused Adam",
                1,
            ),
            (
                "optimizer",
                "Optimizer part of a mixed-precision step on ResNet-50's 161 "
                "parameters: unscale, check, Adam, 16-bit weights; Tern with "
                "fp32 master weights, PyTorch with fused Adam and autocast's "
                "casts",
                1,
            ),
        ]
    ),
    Comparison(
        name="ddp",
        title="Training step of ResNet-18 in two processes with one thread "
        "each, over Gloo: fp32, 8 images of 128 px per process, fused SGD",
        peer="torch",
        peer_program="ddp_torch.py",
        tern_program="tests/bench/ddp_timed",
        options=["--steps", "20"],
        rows=[Row("step_seconds", "the step", goal=1), *TRAVEL],
    ),
    *(
        Comparison(
            name=f"ddp_network_{machines}",
            title="Training step of ResNet-18 over Gloo as above (`ddp`), on "
            f"{machines} machines: network namespaces with links of 2 Gbit/s "
            "that share these cores",
            peer="torch",
            peer_program="ddp_torch.py",
            tern_program="tests/bench/ddp_timed",
            network=(machines, 2000),
            rows=[Row("step_seconds", "the step"), *TRAVEL],
            is_long=True,
        )
        for machines in (2, 4)
    ),
    *(
        Comparison(
            name=f"matting_{name}",
            title=title,
            peer="torch",
            peer_program="matting_torch.py",
            tern_program="tests/bench/matting_timed",
            options=options,
            rows=[
                Row("step_seconds", "the step", goal=1),
                Row("peak_megabytes", "memory", goal=1, unit="MB"),
            ],
        )
        for name, options, title in [
            *(
                (
                    f"{job}_{precision}",
                    ["--job", job] + ["--bf16"] * (precision == "bf16"),
                    f"Training step of {network} in {how}, fused Adam",
                )
                for job, network in [
                    (
                        "base",
                        "MattingBase on mobilenet_v2, 4 images of 256 px",
                    ),
                    (
                        "refine",
                        "MattingRefine on mobilenet_v2, 2 images of 512 px, "
                        "80,000 pixels of each refined",
                    ),
                ]
                for precision, how in [
                    ("fp32", "fp32"),
                    ("bf16", "bfloat16 autocast with GradScaler"),
                ]
            ),
            (
                "patches",
                ["--job", "patches"],
                "Matting's selection of 5,000 patches in each of 2 images of "
                "512 px, cropped from 42 channels at half size and 6 at full "
                "size and pasted back, with gradients",
            ),
        ]
    ),
    *(
        Comparison(
            name=f"network_{net}",
            title=f"{net}, 4 images of 224 px in fp32, channels-last; a step "
            "is forward, backward and fused AdamW",
            peer="torchvision",
            peer_program="networks_torch.py",
            tern_program="tests/bench/networks_timed",
            options=["--net", net],
            rows=[
                Row("evaluation_seconds", "evaluation", goal=1),
                Row("evaluation_megabytes", "its memory", goal=1, unit="MB"),
                Row("step_seconds", "a training step", goal=1),
                Row("peak_megabytes", "its memory", goal=1, unit="MB"),
            ],
            is_warm=True,
            has_cpu_time=True,
        )
        for net in (
            "convnext_tiny",
            "densenet121",
            "efficientnet_b0",
            "mobilenet_v3_large",
            "regnet_y_400mf",
            "resnext50_32x4d",
            "swin_t",
            "vit_b_32",
        )
    ),
    *(
        Comparison(
            name=f"deploy_{net}_{batch}_{peer}",
            title=f"Predictor on {net}, {batch} image{'s' * (batch > 1)} of "
            f"224 px in fp32, against {what}",
            peer=package,
            peer_program="deploy_python.py",
            tern_program="tests/bench/deploy_timed",
            options=["--net", net, "--batch", str(batch)],
            peer_options=["--peer", peer],
            rows=[Row("seconds", "prediction", goal=goal, unit="ms")],
            is_warm=True,
        )
        for net, peers in [
            ("resnet18", DEPLOY_PEERS),
            ("resnet50", DEPLOY_PEERS),
            ("convnext_tiny", DEPLOY_PEERS[:1]),
            ("efficientnet_b0", DEPLOY_PEERS[:1]),
            ("mobilenet_v3_large", DEPLOY_PEERS[:1]),
            ("vit_b_16", DEPLOY_PEERS[:1]),
        ]
        for batch in (1, 16)
        for peer, package, what in peers
        for goal in [1.05 if "resnet" in net and peer == "onnxruntime" else 1]
    ),
    *(
        Comparison(
            name=f"deploy_bfloat16_{net}_{batch}",
            title=f"Predictor on {net}, {batch} image{'s' * (batch > 1)} of "
            "224 px in bfloat16, against the same network exported as ONNX, in fp32",
            peer="onnxruntime",
            peer_program="deploy_python.py",
            tern_program="tests/bench/deploy_timed",
            options=["--net", net, "--batch", str(batch)],
            tern_options=["--bfloat16"],
            peer_options=["--peer", "onnxruntime"],
            rows=[Row("seconds", "prediction", goal=goal, unit="ms")],
            is_warm=True,
            needs="AMX",
        )
        for net in ("resnet50", "convnext_tiny", "efficientnet_b0", "vit_b_16")
        for batch, goal in ((1, 1.5), (16, 2.5))
    ),
    *(
        Comparison(
            name=f"mixed_{net}_{precision}_{batch}_{how}",
            title=f"Training step with a Learner, against PyTorch: {net} on "
            f"{batch} images of 224 px, {precision_text}, AdamW; PyTorch "
            f"{how_text}, channels-last, fused AdamW",
            peer="torchvision",
            peer_program="mixed_torch.py",
            tern_program="tests/bench/mixed_timed",
            options=[
                *("--net", net),
                *("--precision", precision),
                *("--batch", str(batch)),
            ],
            peer_options=["--compile"] * (how == "compiled"),
            rows=[
                Row("seconds", "the step", goal=1.25, unit="ms"),
                Row("peak_megabytes", "memory", unit="MB"),
            ],
            is_long=True,
            needs="" if precision == "fp32" else "AVX512-BF16",
        )
        for net in (
            "resnet18",
            "resnet50",
            "convnext_tiny",
            "vit_b_32",
            "unet_resnet18",
        )
        for precision, precision_text in (
            ("fp32", "fp32"),
            ("amp", "to_amp() against bfloat16 autocast"),
            ("bf16", "to_bf16() against bfloat16 autocast"),
            (
                "bf16_alone",
                "to_bf16() without master weights against bfloat16 autocast",
            ),
        )
        for batch in (16, 32)
        for how, how_text in (("eager", "eager"), ("compiled", "compiled"))
    ),
    Comparison(
        name="clothing",
        title="The recipe of docs/vision.md, from scratch: clothes, ten "
        "classes, ResNet-18 at 128 px, 30 epochs; Tern in bfloat16, "
        "fastai in fp32, both from downscaled photos",
        peer="fastai",
        peer_program="vision_python.py",
        tern_program="tests/bench/vision_timed",
        archive="clothing/clothing.tar",
        options=["--job", "recipe"],
        peer_options=["--peer", "fastai"],
        rows=[
            Row("accuracy", "validation accuracy", is_time=False),
            Row("seconds", "the whole run"),
        ],
        is_long=True,
    ),
    Comparison(
        name="detection",
        title="RetinaNet on ResNet-18 with FPN, ten classes, photos of "
        "clothes as 256 x 256 pixels, batch 8, fp32, channels-last, fused AdamW, "
        "each with its own loader of 2 workers; 64 training and 64 validation "
        "images; evaluation keeps all candidates (score threshold 0). Tern also "
        "computes the validation loss; pycocotools evaluates torchvision's "
        "detections",
        peer="torchvision",
        peer_program="detection_torch.py",
        tern_program="tests/bench/detection_timed",
        archive="clothing/clothing.tar",
        rows=[
            Row("train_seconds", "training", goal=1),
            Row("valid_seconds", "evaluation with COCO metrics", goal=1),
        ],
        is_warm=True,
    ),
    *(
        Comparison(
            name=f"vision_{name}",
            title=title,
            peer=peer,
            peer_program="vision_python.py",
            tern_program="tests/bench/vision_timed",
            options=["--job", job],
            peer_options=["--peer", peer],
            archive="" if job == "augment" else "clothing/clothing.tar",
            rows=[Row("seconds", what, goal=goal)]
            + [Row("peak_megabytes", "memory including the loader", 1, unit="MB")]
            * (job == "train"),
        )
        for name, job, peer, what, goal, title in [
            (
                f"load_{peer}",
                "load",
                peer,
                "1000 images",
                goal,
                "Photos of clothes (JPEG, median 400 x 533), random "
                "resized crop to 128 px, flip, normalize, batch 64, 2 workers; "
                f"decoded by {decoder}",
            )
            for peer, goal, decoder in [
                ("torchvision", 2, "torchvision's decode_image"),
                ("pillow", 2, "PIL, torchvision's transforms"),
                ("fastai", 2, "PIL, fastai's transforms"),
            ]
        ]
        + [
            (
                "train_resnet18",
                "train",
                "torchvision",
                "1000 images",
                1,
                "Training ResNet-18 on those photos, fp32, channels-last, "
                "batch 32, fused AdamW, each with its own loader of 2 workers",
            ),
            (
                "presized",
                "presized",
                "torchvision",
                "1000 images",
                0,
                "The same, Tern from a presized cache of 160 px, torchvision "
                "from the files; the goal is 0.05 s",
            ),
            (
                "augment",
                "augment",
                "torchvision",
                "the batch",
                1,
                "Flip, perspective, rotation, zoom, brightness and contrast of "
                "64 images of 224 px on the CPU",
            ),
        ]
    ),
]


def run_once(command, scratch):
    """Runs a program once; returns its report with the elapsed seconds."""
    report = scratch / "report.json"
    report.unlink(missing_ok=True)
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--json", str(report)],
        cwd=scratch,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0 or not report.exists():
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return json.loads(report.read_text()) | {"process_seconds": seconds}


def unpack(archive, scratch):
    """The only folder in an archive of TERN_DATA, or the folder with its content."""
    source = pathlib.Path(os.environ.get("TERN_DATA", "")) / archive
    if not source.is_file():
        sys.exit(
            f"{source} does not exist. Set TERN_DATA to the folder with {archive}."
        )
    target = scratch / "data"
    with tarfile.open(source) as tar:
        tar.extractall(target)
    found = list(target.iterdir())
    return str(found[0] if len(found) == 1 else target)


@contextlib.contextmanager
def network(comparison):
    """The start of a command line that runs the command on each machine."""
    if not comparison.network:
        yield []
        return
    program = str(ROOT / "tests" / "support" / "network.sh")
    machines, megabits = map(str, comparison.network)
    subprocess.run([program, "up", "ternnet", machines, megabits], check=True)
    try:
        yield [program, "ranks", "ternnet"]
    finally:
        subprocess.run([program, "down", "ternnet"], check=True)


def measure(comparison, build, rounds):
    """Two lists of reports: Tern's and the peer's."""
    with (
        tempfile.TemporaryDirectory() as name,
        network(comparison) as on_each,
    ):
        scratch = pathlib.Path(name)
        data = list(comparison.options)
        if comparison.archive:
            data += ["--data", unpack(comparison.archive, scratch)]
        program = str(build / comparison.tern_program)
        tern = [*on_each, program, *comparison.tern_options, *data]
        peer_program = str(HERE / comparison.peer_program)
        peer = [*on_each, sys.executable, peer_program, *comparison.peer_options, *data]
        reports = {"tern": [], "peer": []}
        # The first round warms the disk cache and is not counted.
        is_warm = comparison.is_warm or comparison.is_long
        for round_ in range(int(is_warm), rounds + 1):
            for side, command in ("tern", tern), ("peer", peer):
                report = run_once(command, scratch)
                if round_ > 0:
                    reports[side].append(report)
                print(
                    f"{comparison.name} round {round_} {side}: "
                    + ", ".join(f"{k} {v:.4g}" for k, v in report.items()),
                    flush=True,
                )
    return reports["tern"], reports["peer"]


def cell(reports, row):
    """The median and its text; empty if a program does not measure it."""
    if row.key not in reports[0]:
        return None, ""
    factor = {"ms": 1e3, "us": 1e6}.get(row.unit, 1)
    values = sorted(factor * report[row.key] for report in reports)
    median = statistics.median(values)
    if not row.is_time:
        return median, f"{median:.4f}"
    digits = 0 if row.unit == "MB" else 3
    smallest, middle, largest = (
        f"{value:.{digits}f}" for value in (values[0], median, values[-1])
    )
    return median, f"{middle} {row.unit} ({smallest} to {largest})"


def table(comparison, tern, peer):
    lines = [
        f"| what | Tern | {comparison.peer} | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for row in comparison.rows:
        ours, our_text = cell(tern, row)
        theirs, their_text = cell(peer, row)
        ratio = f"{theirs / ours:.3g}" if row.is_time and theirs else ""
        goal = f"{row.goal:g}" if row.goal else ""
        reached = theirs / ours if row.is_time else ours
        if row.goal and reached < row.goal:
            goal += ", missed"
        lines.append(
            f"| {row.what} | {our_text} | {their_text} | {ratio} | {goal} |"
        )
    return lines


def output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def cpuinfo(key):
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def instructions():
    flags = cpuinfo("flags").split()
    return [name for name, flag in INSTRUCTIONS.items() if flag in flags]


def cpu():
    """The CPU's name and its widest instruction set."""
    name = cpuinfo("model name") or platform.machine()
    return f"{name} with {instructions()[-1]}" if instructions() else name


def compiler(build):
    """The compiler of the programs in a build folder. They may come from another
    machine, without CMakeCache.txt or without that compiler."""
    cache = build / "CMakeCache.txt"
    text = cache.read_text() if cache.exists() else ""
    found = re.search(r"CMAKE_CXX_COMPILER:\w+=(.*)", text)
    if not found:
        return "unknown compiler"
    version = output(found.group(1), "--version").partition("\n")[0]
    return version or found.group(1)


def commit():
    """The commit, or TERN_COMMIT if the sources have no repository."""
    given = os.environ.get("TERN_COMMIT")
    if given:
        return given
    head = output("git", "rev-parse", "--short", "HEAD")
    if not head:
        return "unknown commit"
    changed = output("git", "status", "--porcelain", "--untracked-files=no")
    return head + " with local changes" * bool(changed)


def version_of(package):
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} of unknown version"


@functools.cache  # once for all comparisons, because it may take a second
def gpus():
    command = "nvidia-smi --query-gpu=name --format=csv,noheader 2>&-"
    return output("sh", "-c", command) or "no GPU"


def facts(comparison, rounds, command, build):
    """What a reader needs to reproduce the numbers."""
    peers = dict.fromkeys([comparison.peer, "torch"])
    versions = [version_of(name) for name in peers]
    return (
        f"{cpu()}, {os.cpu_count()} cores, {gpus()}; "
        f"{', '.join(versions)}, Python {platform.python_version()}; "
        f"Tern at {commit()}, {compiler(build)}. "
        f"Median of {rounds} rounds, alternating (smallest to largest): "
        f"`{command} {comparison.name} --rounds {rounds}"
        f"{' --cpu-time' * ('--cpu-time' in comparison.options)}`"
    )


def kind_of(line):
    """The kind of machine that a line of facts() describes: its GPU, or its CPU's
    maker and whether it has AMX. None for other lines."""
    found = re.match(r"(\w+).*?( with AMX)?, \d+ cores, (.+?); ", line)
    if not found:
        return None
    maker, amx, gpu = found.groups()
    return gpu if gpu != "no GPU" else maker + (amx or "")


def of_other_machines(old, lines):
    """The blocks of an old section, each facts with their table, that describe
    kinds of machines other than those of the new lines."""
    kinds = {kind_of(line) for line in lines}
    kept = []
    is_kept = False
    for line in old:
        if kind_of(line):
            is_kept = kind_of(line) not in kinds
            if is_kept and (not kept or kept[-1]):
                kept.append("")
        if is_kept:
            kept.append(line)
    return kept


def write(name, lines, page, command):
    """Replaces the section and keeps its results on other kinds of machines; a new
    section comes last, but before those not measured yet."""
    begin = f"<!-- {name}: written by {command} -->"
    end = f"<!-- end of {name} -->"
    text = page.read_text() if page.exists() else "# Benchmarks\n"
    found = re.search(
        re.escape(begin) + "\n(.*?)\n" + re.escape(end), text, flags=re.DOTALL
    )
    old = found[1].split("\n") if found else []
    section = "\n".join([begin, *lines, *of_other_machines(old, lines), end])
    if found:
        text = text[: found.start()] + section + text[found.end() :]
    else:
        text, waiting, list_ = text.partition("## Not measured yet")
        text = text.rstrip() + "\n\n" + section + "\n"
        if waiting:
            text += "\n" + waiting + list_
    page.parent.mkdir(parents=True, exist_ok=True)
    # A process that is killed here leaves the old page unchanged.
    new = page.with_name(page.name + ".new")
    new.write_text(text)
    new.replace(page)


def section_of(comparison, tern, peer, command, build):
    """The lines of a page for a comparison's reports."""
    return [
        f"### {comparison.title}",
        "",
        facts(comparison, len(tern), command, build),
        "",
        *table(comparison, tern, peer),
    ]


def warn_if_busy():
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The machine is busy (load {load:.1f}); the ratios are more "
              "reliable than the seconds.")


def chosen(comparisons, patterns):
    """The comparisons that match the patterns, in their order; without patterns,
    all but the long ones."""
    if not patterns:
        return [one for one in comparisons if not one.is_long]
    found = {}
    for pattern in patterns:
        matches = [
            one for one in comparisons if fnmatch.fnmatch(one.name, pattern)
        ]
        if not matches:
            names = [one.name for one in comparisons]
            sys.exit(f"There is no comparison {pattern}; expected some of {names}.")
        found |= {one.name: one for one in matches}
    return list(found.values())


def compare(comparisons, page, command, arguments):
    warn_if_busy()
    for comparison in chosen(comparisons, arguments.names):
        if comparison.needs and comparison.needs not in instructions():
            print(f"{comparison.name} needs a processor with "
                  f"{comparison.needs}; this is {cpu()}.")
            continue
        if arguments.cpu_time:
            if not comparison.has_cpu_time:
                sys.exit(f"{comparison.name} does not support --cpu-time.")
            os.environ["OMP_NUM_THREADS"] = "1"
            comparison.options.append("--cpu-time")
            comparison.title += "; one thread, processor time"
        build = arguments.build.resolve()
        tern, peer = measure(comparison, build, arguments.rounds)
        lines = section_of(comparison, tern, peer, command, build)
        print("\n".join(lines))
        write(f"peers {comparison.name}", lines, page, command)


def parser_for(comparisons, command, build):
    names = [comparison.name for comparison in comparisons]
    parser = argparse.ArgumentParser(prog=command)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{names}, or patterns"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / build)
    return parser


def main():
    command = "./dev bench peers"
    parser = parser_for(COMPARISONS, command, "build-bench")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="for a busy machine: measure processor time with one thread "
        "(network_*)",
    )
    compare(COMPARISONS, PAGE, command, parser.parse_args())


if __name__ == "__main__":
    main()
