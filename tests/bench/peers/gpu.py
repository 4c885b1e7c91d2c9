"""The last part of ./dev gpu: Tern beside Python PyTorch on a GPU, into
docs/gpu.md: a section for each comparison that was measured, a table of those
that wait. `--device cpu --page FILE` tries it without one, with small sizes.
"""
import importlib.util
import pathlib
import sys

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
    peer="torch",
):
    """graph: whether Tern's step is a CUDA graph, whether the peer's is."""
    return Comparison(
        name=name,
        title=title,
        peer=peer,
        peer_program="gpu_torch.py",
        tern_program=TERN_PROGRAM,
        options=["--precision", precision],
        tern_options=["--job", job, "--graph", str(graph[0])],
        peer_options=["--job", peer_job or job, "--graph", str(graph[1])],
        rows=rows,
        is_warm=True,
    )


def graph_steps(goal):
    """Without memory: a graph holds more than what is allocated at once."""
    return [Row(STEP, "the step", goal=goal, unit="ms")]


def steps(goal=0, precision="fp32"):
    rows = [
        Row(STEP, "the step", goal=goal, unit="ms"),
        Row("peak_megabytes", "memory", unit="MB"),
    ]
    if precision not in ("fp32", "tf32"):
        saved = "share of the memory of its own fp32 that is saved"
        rows.append(Row("memory_saved", saved, goal=0.3, is_time=False))
    return rows


COMPARISONS = [
    *(
        comparison(
            f"resnet50_{precision}",
            f"Training step of ResNet-50, 256 images of 224 px, channels-last, "
            f"fused SGD: {how}",
            steps(goal, precision),
            "resnet50",
            precision,
        )
        for precision, goal, how in [
            ("fp32", 0, "fp32 without TF32"),
            ("tf32", 0, "fp32 with TF32"),
            ("fp16", 1, "`to_fp16` against autocast in fp16 with GradScaler"),
            ("bf16", 1, "`to_bf16` against autocast in bf16"),
            ("amp", 1, "`to_amp` against autocast in fp16 with GradScaler"),
        ]
    ),
    *(
        comparison(
            f"resnet50_{precision}_graph",
            "Training step of ResNet-50, 256 images of 224 px, channels-last, "
            f"fused SGD: `to_cuda_graph`, `to_{precision}`, against PyTorch AMP "
            "launch by launch",
            graph_steps(1.05),
            "resnet50",
            precision,
            graph=(1, 0),
        )
        for precision in ("fp16", "amp")
    ),
    *(
        comparison(
            f"mnist_cnn_{name}",
            "Training step of a CNN for MNIST (16-32-10), batch 64, fused "
            f"AdamW, fp32: {how}",
            graph_steps(goal) if graph[0] else steps(goal),
            "mnist_cnn",
            graph=graph,
        )
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
                "MattingRefine, 4 images of 1024 px, 80,000 pixels of each "
                "refined,",
            ),
        ]
        for precision in ("fp32", "fp16", "amp")
    ),
    *(
        comparison(
            f"adam_{peer}",
            "Optimizer side of a mixed-precision step, 100 million parameters: "
            "Tern's Adam with fp32 masters, PyTorch's with GradScaler and "
            f"autocast's casts, {peer}",
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
                    goal=0.9,
                    is_time=False,
                ),
            ],
            "adam",
            peer_job=f"adam_{peer}",
        )
        for peer, goal in [("fused", 1.5), ("foreach", 2.5)]
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


def waiting_table(waiting):
    """A line for those that measure the same thing in several ways, which is
    what their titles say before the colon.
    """
    if not waiting:
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
    return lines


def list_waiting(page):
    """Those that the page has no figures of."""
    text = page.read_text() if page.exists() else ""
    waiting = [one for one in COMPARISONS if f"peers {one.name}:" not in text]
    write("waiting", waiting_table(waiting), page, COMMAND)


def main():
    parser = parser_for(COMPARISONS, COMMAND, "build-gpu")
    parser.set_defaults(rounds=3)
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
    try:
        compare(there, arguments.page, COMMAND, arguments)
    finally:
        list_waiting(arguments.page)


if __name__ == "__main__":
    sys.exit(main())
