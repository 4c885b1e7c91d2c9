"""The last part of ./dev gpu: Tern beside Python PyTorch on a GPU, into
docs/gpu.md: a section for each comparison that was measured, a table of those
that wait. `--device cpu --page FILE` tries it without one, with small sizes.
"""
import fnmatch
import importlib.util
import pathlib
import sys

import gpu_converge
from run import ROOT, Comparison, Row, compare, parser_for, write

TERN_PROGRAM = "tests/bench/gpu_timed"
COMMAND = "./dev gpu"
STEP = "step_seconds"


def comparison(
    name,
    title,
    rows,
    job,
    precision="fp32",
    peer_job=None,
    graph=(0, 0),
    is_compiled=False,
    peer="torch",
):
    """graph: whether Tern's step is a CUDA graph, whether the peer's is.
    is_compiled: whether the peer's network goes through torch.compile."""
    return Comparison(
        name=name,
        title=title,
        peer=peer,
        peer_program="gpu_torch.py",
        tern_program=TERN_PROGRAM,
        options=["--precision", precision],
        tern_options=["--job", job, "--graph", str(graph[0])],
        peer_options=["--job", peer_job or job, "--graph", str(graph[1])]
        + ["--compile", "1"] * is_compiled,
        rows=rows,
        is_warm=True,
    )


def graph_steps(goal):
    """Without memory: a graph holds more than what is allocated at once."""
    return [Row(STEP, "the step", goal=goal, unit="ms")]


def steps(goal=0, precision="fp32", times_fp32=0):
    """times_fp32: how many times the speed of its own fp32 is the goal."""
    rows = [
        Row(STEP, "the step", goal=goal, unit="ms"),
        Row("peak_megabytes", "memory", unit="MB"),
    ]
    if precision not in ("fp32", "tf32"):
        saved = "share of the memory of its own fp32 that is saved"
        rows.append(Row("memory_saved", saved, goal=0.3, is_time=False))
        faster = "times as fast as its own fp32, without TF32"
        rows.append(Row("times_fp32", faster, goal=times_fp32, is_time=False))
    return rows


RESNETS = [("resnet18", "ResNet-18"), ("resnet50", "ResNet-50")]
RESNET_STEP = "Training step of {}, 256 images of 224 px, channels-last, fused AdamW"


COMPARISONS = [
    *(
        comparison(
            f"{name}_{precision}",
            f"{RESNET_STEP.format(title)}: {how}",
            steps(goal, precision, times),
            name,
            precision,
        )
        for name, title in RESNETS
        for precision, goal, times, how in [
            ("fp32", 1, 0, "fp32 without TF32"),
            ("tf32", 1, 0, "fp32 with TF32"),
            ("fp16", 1, 2, "`to_fp16` against autocast in fp16 with GradScaler"),
            ("bf16", 1, 0, "`to_bf16` against autocast in bf16"),
            ("amp", 1, 0, "`to_amp` against autocast in fp16 with GradScaler"),
        ]
    ),
    *(
        comparison(
            f"{name}_{precision}_compile",
            f"{RESNET_STEP.format(title)}: `to_{precision}` against "
            "`torch.compile` with AMP",
            [Row(STEP, "the step", unit="ms")],
            name,
            precision,
            is_compiled=True,
        )
        for name, title in RESNETS
        for precision in ("fp16", "amp")
    ),
    *(
        comparison(
            f"resnet50_{precision}_graph",
            f"{RESNET_STEP.format('ResNet-50')}: `to_cuda_graph`, "
            f"`to_{precision}`, against PyTorch AMP launch by launch",
            graph_steps(1.05),
            "resnet50",
            precision,
            graph=(1, 0),
        )
        for precision in ("fp16", "amp")
    ),
    *(
        comparison(
            f"{net}_{name}",
            f"Training step of {title}, batch 64, fused AdamW, fp32: {how}",
            graph_steps(goal) if graph[0] else steps(goal),
            net,
            graph=graph,
        )
        for net, title in [
            ("mnist_cnn", "a CNN for MNIST (16-32-10)"),
            ("mlp", "an MLP for MNIST (784-256-256-10)"),
        ]
        for name, goal, graph, how in [
            ("eager", 2, (0, 0), "both launch by launch"),
            ("graph", 2, (1, 0), "`to_cuda_graph`, PyTorch launch by launch"),
            ("graphs", 1, (1, 1), "`to_cuda_graph` and PyTorch's CUDA graph"),
        ]
    ),
    *(
        comparison(
            f"checkerboard_{precision}",
            "Training step of the checkerboard net (1x1 convolutions "
            "2-256-256-256-1 with BatchNorm), 512 x 512, fused Adam: "
            + precision,
            [
                *steps(precision=precision),
                Row("loss", "loss at the end", is_time=False),
            ],
            "checkerboard",
            precision,
        )
        for precision in ("fp32", "fp16", "amp")
    ),
    *(
        comparison(
            f"matting_{network}_{precision}",
            f"Training step of {title} on ResNet-50, fused Adam: {precision}",
            steps(precision=precision),
            f"matting_{network}",
            precision,
        )
        for network, title in [
            ("base", "MattingBase, 8 images of 512 px,"),
            (
                "refine",
                "MattingRefine, an image of 2048 px, 80,000 pixels refined,",
            ),
        ]
        for precision in ("fp32", "fp16", "amp")
    ),
    *(
        comparison(
            f"adam_{peer}",
            f"Optimizer side of a mixed-precision step, {what}: Tern's Adam "
            "with fp32 master weights, PyTorch's with GradScaler and "
            f"autocast's casts, {how}",
            [
                Row(
                    STEP,
                    "unscale, check, step, 16-bit weights",
                    goal=goal,
                    unit="ms",
                ),
                Row(
                    "share_of_copy",
                    "share of a device copy's bandwidth, at 30 bytes a "
                    "parameter",
                    goal=0.85,
                    is_time=False,
                ),
            ],
            job,
            peer_job=f"adam_{peer}",
        )
        for peer, job, what, how, goal in [
            ("resnet50", "adam_resnet50", "ResNet-50's parameters", "fused", 1.3),
            ("fused", "adam", "100 million parameters", "fused", 1.5),
            ("foreach", "adam", "100 million parameters", "foreach", 2.5),
        ]
    ),
    comparison(
        "feed",
        "Decoded images of 224 px, from the loader's 4 workers to normalised "
        "half on the device; 150,528 bytes an image over the bus",
        [Row("image_seconds", "an image", unit="us")],
        "feed",
    ),
    *(
        comparison(
            name,
            "Augmentation of 256 images of 224 px on the device, each turned, "
            "zoomed, flipped, moved and lit in its own way, to normalised half "
            f"in channels-last: one launch against {how}",
            [Row(STEP, "a batch", goal=3, unit="ms")],
            "augment",
            peer_job=name,
            peer=peer,
        )
        for name, peer, how in [
            ("augment", "torch", "affine_grid, grid_sample and arithmetic"),
            (
                "augment_v2",
                "torchvision",
                "torchvision's transforms v2 of each image",
            ),
            (
                "augment_v2_together",
                "torchvision",
                "torchvision's transforms v2 of the batch, with one random "
                "change for all images",
            ),
        ]
    ),
]


def goals_of(comparisons):
    goals = {}
    for one in comparisons:
        for row in one.rows:
            if row.goal:
                goals.setdefault(row.what, {})[f"{row.goal:g}"] = None
    return "; ".join(f"{what} {' or '.join(all)}" for what, all in goals.items())


def waiting_table(waiting, trainings):
    """A line for those that measure the same thing in several ways, which is
    what their titles say before the colon; `trainings` are of gpu_converge.
    """
    if not waiting and not trainings:
        return ["Every comparison is measured."]
    subjects = {}
    for one in waiting:
        subjects.setdefault(one.title.partition(": ")[0], []).append(one)
    lines = [
        f"| comparison | `{COMMAND} NAME` | goal, as a ratio |",
        "|---|---|---|",
    ]
    for subject, group in subjects.items():
        names = ", ".join(
            f"`{one.name}`"
            + ("" if one.peer == "torch" else f" (needs {one.peer})")
            for one in group
        )
        lines.append(f"| {subject} | {names} | {goals_of(group)} |")
    for one in trainings:
        lines.append(f"| {one.title} | `{one.name}` | {one.goal} |")
    return lines


def list_waiting(page):
    """Those that the page has no figures of."""
    text = page.read_text() if page.exists() else ""

    def wait(those):
        return [one for one in those if f"peers {one.name}:" not in text]

    lines = waiting_table(wait(COMPARISONS), wait(gpu_converge.TRAININGS))
    write("waiting", lines, page, COMMAND)


def main():
    parser = parser_for(COMPARISONS + gpu_converge.TRAININGS, COMMAND, "build-gpu")
    parser.set_defaults(rounds=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--page", type=pathlib.Path, default=ROOT / "docs" / "gpu.md"
    )
    arguments = parser.parse_args()
    import torch  # here, so that the page can be written without it

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("There is no GPU: nothing was measured. The page keeps its "
              "figures and lists what waits.")
        list_waiting(arguments.page)
        return
    missing = [
        one for one in COMPARISONS if not importlib.util.find_spec(one.peer)
    ]
    for one in missing:
        print(f"{one.name}: {one.peer} is not installed; it was not measured.")
    there = [one for one in COMPARISONS if one not in missing]
    for one in there:
        one.options += ["--device", arguments.device]
    patterns = arguments.names
    trainings = [
        one
        for one in gpu_converge.TRAININGS
        if not patterns
        or any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)
    ]
    names = [one.name for one in there]
    arguments.names = [p for p in patterns if fnmatch.filter(names, p)]
    unknown = [
        p
        for p in patterns
        if p not in arguments.names
        and not any(fnmatch.fnmatch(one.name, p) for one in trainings)
    ]
    if unknown:
        sys.exit(f"There is nothing called {', '.join(unknown)}; expected "
                 f"some of {names + [one.name for one in gpu_converge.TRAININGS]}.")
    try:
        if arguments.names or not patterns:
            compare(there, arguments.page, COMMAND, arguments)
        for one in trainings:
            one.run(arguments, COMMAND)
    finally:
        list_waiting(arguments.page)


if __name__ == "__main__":
    sys.exit(main())
