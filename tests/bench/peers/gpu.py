"""The last part of ./dev gpu: compares Tern with Python PyTorch on a GPU and writes
docs/gpu.md, or $OUT/gpu.md if OUT is set: a section per measured comparison, and a
table of the comparisons that are not measured yet.

Comparisons run in the order given, and the page is written after each. If one fails
or takes longer than `--limit`, the others still run, and the exit code is 1.
`--device cpu --page FILE` rehearses them without a GPU, with small sizes.
"""
import importlib.util
import os
import pathlib
import shutil
import sys
import time

import gpu_converge
from programs import Failed, end_on_sigterm, running
from run import (
    HERE,
    ROOT,
    Comparison,
    Row,
    chosen,
    parser_for,
    section_of,
    warn_if_busy,
    write,
)

TERN_PROGRAM = "tests/bench/gpu_timed"
COMMAND = "./dev gpu"
STEP = "step_seconds"
# Time to start the programs and for one round of a small comparison.
LEAST_SECONDS = 10


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
    """graph: whether Tern's and the peer's steps are CUDA graphs.
    is_compiled: whether the peer's network is compiled by torch.compile."""
    with_fp32 = any(row.key in OF_ITS_FP32 for row in rows)
    return Comparison(
        name=name,
        title=title,
        peer=peer,
        peer_program="gpu_torch.py",
        tern_program=TERN_PROGRAM,
        options=["--precision", precision]
        + ["--with-fp32", str(int(with_fp32))],
        tern_options=["--job", job, "--graph", str(graph[0])],
        peer_options=["--job", peer_job or job, "--graph", str(graph[1])]
        + ["--compile", "1"] * is_compiled,
        rows=rows,
        is_warm=True,
    )


OF_ITS_FP32 = ("memory_saved", "times_fp32")


def graph_steps(goal):
    """Without memory: a graph holds more memory than is allocated at any time."""
    return [Row(STEP, "the step", goal=goal, unit="ms")]


def steps(goal=0, precision="fp32", times_fp32=0):
    """times_fp32: goal for the speedup over its own fp32."""
    rows = [
        Row(STEP, "the step", goal=goal, unit="ms"),
        Row("peak_megabytes", "memory", unit="MB"),
    ]
    if precision not in ("fp32", "tf32"):
        saved = "fraction of its own fp32's memory saved"
        rows.append(Row("memory_saved", saved, goal=0.3, is_time=False))
        faster = "speedup over its own fp32 without TF32"
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
            f"`to_{precision}`, against eager PyTorch AMP",
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
            ("eager", 2, (0, 0), "both eager"),
            ("graph", 2, (1, 0), "`to_cuda_graph` against eager PyTorch"),
            ("graphs", 1, (1, 1), "`to_cuda_graph` against PyTorch's CUDA graph"),
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
                Row("loss", "final loss", is_time=False),
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
                "MattingRefine, 1 image of 2048 px, 80,000 pixels refined,",
            ),
        ]
        for precision in ("fp32", "fp16", "amp")
    ),
    *(
        comparison(
            f"adam_{peer}",
            f"Optimizer part of a mixed-precision step, {what}: Tern's Adam "
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
                    "fraction of a device copy's bandwidth, at 30 bytes "
                    "per parameter",
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
        "Decoded images of 224 px, from the loader's 4 workers to normalized "
        "half on the device; 150,528 bytes per image over the bus",
        [Row("image_seconds", "one image", unit="us")],
        "feed",
    ),
    *(
        comparison(
            name,
            "Augmentation of 256 images of 224 px on the device, each with its "
            "own rotation, zoom, flip, shift and lighting, to normalized half "
            f"in channels-last: one launch against {how}",
            [Row(STEP, "one batch", goal=3, unit="ms")],
            "augment",
            peer_job=name,
            peer=peer,
        )
        for name, peer, how in [
            ("augment", "torch", "affine_grid, grid_sample and arithmetic"),
            (
                "augment_v2",
                "torchvision",
                "torchvision's transforms v2 per image",
            ),
            (
                "augment_v2_together",
                "torchvision",
                "torchvision's transforms v2 on the batch, with one random "
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
    """One line per group of comparisons with the same title before the colon;
    `trainings` are of gpu_converge."""
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
    """Lists the comparisons without figures on the page."""
    text = page.read_text() if page.exists() else ""

    def wait(those):
        return [one for one in those if f"peers {one.name}:" not in text]

    lines = waiting_table(wait(COMPARISONS), wait(gpu_converge.TRAININGS))
    write("waiting", lines, page, COMMAND)


def measure(comparison, arguments, seconds):
    """Runs alternating rounds of both programs."""
    program = arguments.build.resolve() / comparison.tern_program
    options = [*comparison.options, "--device", arguments.device]
    commands = {
        "tern": [str(program), *comparison.tern_options, *options],
        "peer": [sys.executable, str(HERE / comparison.peer_program)]
        + [*comparison.peer_options, *options],
    }
    reports = {"tern": [], "peer": []}
    try:
        with running(commands, seconds) as programs:
            for program in programs.values():
                program.wait_until_ready()
            for round_ in range(1, arguments.rounds + 1):
                for side, program in programs.items():
                    report = program.measure()
                    reports[side].append(report)
                    numbers = [f"{k} {v:.4g}" for k, v in report.items()]
                    print(f"{comparison.name} round {round_} {side}: "
                          f"{', '.join(numbers)}")
    finally:
        # Complete rounds count, even if the measurement ended early.
        rounds = len(reports["peer"])
        if rounds:
            tern, peer = reports["tern"][:rounds], reports["peer"]
            lines = section_of(comparison, tern, peer, COMMAND, arguments.build)
            print("\n".join(lines))
            write(f"peers {comparison.name}", lines, arguments.page, COMMAND)


def run_all(those, arguments, end):
    """Returns the names of failed comparisons. end: in time.monotonic()."""
    failed, late = [], []
    for one in those:
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            late.append(one.name)
            continue
        begin = time.monotonic()
        try:
            if isinstance(one, Comparison):
                measure(one, arguments, min(arguments.limit, left))
            else:
                one.run(arguments, COMMAND, min(arguments.limit, left))
        except Exception as error:  # a missing data file also ends only this comparison
            failed.append(one.name)
            what = error if isinstance(error, Failed) else repr(error)
            print(f"{one.name} FAILED: {what}")
        print(f"{one.name} took {time.monotonic() - begin:.1f} s")
        list_waiting(arguments.page)
    if late:
        print(f"No time was left for: {', '.join(late)}")
    if failed:
        print(f"Failed: {', '.join(failed)}")
    return failed


def page_of(arguments):
    """docs/gpu.md, or a copy of it in the folder OUT."""
    page = ROOT / "docs" / "gpu.md"
    if arguments.page:
        return arguments.page
    if not os.environ.get("OUT"):
        return page
    copy = pathlib.Path(os.environ["OUT"]).resolve() / "gpu.md"
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, copy)
    return copy


def has_gpu():
    import torch  # imported here, so that the page can be written without it

    return torch.cuda.is_available()


def main(words=None):
    everything = COMPARISONS + gpu_converge.TRAININGS
    parser = parser_for(everything, COMMAND, "build-gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument(
        "--limit",
        type=float,
        default=120,
        metavar="SECONDS",
        help="time limit for each comparison; its complete rounds count "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="time limit for all comparisons; those that no longer fit are "
        "listed and skipped",
    )
    arguments = parser.parse_args(words)
    arguments.page = page_of(arguments)
    end = time.monotonic() + arguments.deadline
    those = chosen(everything, arguments.names)
    if arguments.device == "cuda" and not has_gpu():
        print("There is no GPU: nothing was measured. The page keeps its "
              "figures and lists what is not measured yet.")
        list_waiting(arguments.page)
        return 0
    if arguments.device == "cpu":
        # Work this small takes ten times longer if threads wait for each other on a busy CPU.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    warn_if_busy()
    there = []
    for one in those:
        if importlib.util.find_spec(one.peer):
            there.append(one)
        else:
            print(f"{one.name}: {one.peer} is not installed; it was not "
                  "measured.")
    return 1 if run_all(there, arguments, end) else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    end_on_sigterm()
    sys.exit(main())
