"""Kills or stops processes of torchrun in the middle of training: the run must
resume from the last checkpoint and end with weights that are bit-identical to an
uninterrupted run. Usage: `check_restarts.py TORCHRUN PROGRAM FOLDER`, where
PROGRAM is examples/ddp. One kill and one stop by default; TERN_RANK_KILLS sets
the number of kills and also stops torchrun itself.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

TORCHRUN, PROGRAM, FOLDER = sys.argv[1:]
KILLS = int(os.environ.get("TERN_RANK_KILLS", 1))
STOPS = ["one rank is asked to stop", "torchrun is asked to stop"]
if "TERN_RANK_KILLS" not in os.environ:
    STOPS.pop()
RANKS, EPOCHS, LIMIT = 2, 10, 90  # seconds


def write_png(path, rows):
    def chunk(kind, data):
        body = kind + data
        return (
            struct.pack(">I", len(data)) + body
            + struct.pack(">I", zlib.crc32(body))
        )

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
        + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def write_images(folder):
    """Writes images of noise with a bright upper or lower half."""
    draw = random.Random(1)
    for split, count in ("train", 200), ("valid", 40):
        for name, light in ("upper", range(14)), ("lower", range(14, 28)):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                write_png(
                    folder / split / name / f"{i}.png",
                    [
                        [
                            draw.randrange(256) // (1 if row in light else 2)
                            for _ in range(28)
                        ]
                        for row in range(28)
                    ],
                )


def start(data, run, restarts):
    return subprocess.Popen(
        [
            TORCHRUN, "--no-python", "--standalone", "--nproc-per-node",
            str(RANKS), "--max-restarts", str(restarts), PROGRAM,
            "--data", data, "--folder", run, "--epochs", str(EPOCHS),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def give_up(process, run, what):
    """Also kills torchrun's children, which keep the pipe open."""
    os.killpg(process.pid, signal.SIGKILL)
    for rank in range(RANKS):
        if (left := rank_process(run, rank)) is not None:
            os.kill(left, signal.SIGKILL)
    sys.exit(f"{what}\n{process.communicate()[0]}")


def rank_process(run, rank):
    """Returns the process ID of this rank of the run, or None."""
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if not entry.name.isdigit():
                continue
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0] != PROGRAM.encode() or str(run).encode() not in words:
                continue
            if f"RANK={rank}".encode() in (
                (entry / "environ").read_bytes().split(b"\0")
            ):
                return int(entry.name)
        except OSError:
            continue  # the process has ended since
    return None


def wait_for_checkpoint(process, run, checkpoints):
    end = time.monotonic() + LIMIT
    while len(list(run.glob("step_*"))) < checkpoints:
        if process.poll() is not None or time.monotonic() > end:
            give_up(process, run, "It ended before it saved, or it hangs.")
        time.sleep(0.01)


def finish(process, run, what):
    try:
        words, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        give_up(process, run, f"{what}: the run hangs")
    return words


def weights(run):
    """Returns the bytes of the last checkpoint's tensors."""
    last = max(run.glob("step_*"), key=lambda p: int(p.name.split("_")[1]))
    content = (last / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return last.name, header, content[8 + size :]


def expect_same(run, expected, what, words):
    if weights(run) != expected:
        sys.exit(f"{what}: the weights or the last step differ\n{words}")


def go_on_to_the_end(data, run, expected, what):
    process = start(data, run, 0)
    words = finish(process, run, what)
    if process.returncode != 0:
        sys.exit(f"{what}: could not resume\n{words}")
    expect_same(run, expected, what, words)


def main():
    folder = pathlib.Path(FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "data"
    write_images(data)
    whole = folder / "whole"
    begin = time.monotonic()
    process = start(data, whole, 0)
    words = finish(process, whole, "uninterrupted")
    whole_seconds = time.monotonic() - begin
    if process.returncode != 0:
        sys.exit(f"uninterrupted: the run failed\n{words}")
    expected = weights(whole)

    for kill in range(KILLS):
        run, rank = folder / f"kill_{kill}", kill % RANKS
        what = f"kill {kill} of rank {rank}"
        process = start(data, run, 3)
        wait_for_checkpoint(process, run, 1)
        time.sleep(random.uniform(0, 0.3))
        if (victim := rank_process(run, rank)) is not None:
            os.kill(victim, signal.SIGKILL)
        words = finish(process, run, what)
        if process.returncode != 0:
            sys.exit(f"{what}: torchrun ended with {process.returncode}"
                     f"\n{words}")
        expect_same(run, expected, what, words)
        shutil.rmtree(run)

    for what in STOPS:
        run = folder / what.replace(" ", "_")
        process = start(data, run, 0)
        wait_for_checkpoint(process, run, 1)
        asked = process.pid if "torchrun" in what else rank_process(run, 1)
        if asked is None:
            give_up(process, run, f"{what}: rank 1 was not found")
        begin = time.monotonic()
        os.kill(asked, signal.SIGTERM)
        words = finish(process, run, what)
        seconds = time.monotonic() - begin
        # After 30 s, torchrun kills processes that have not ended.
        if seconds > max(whole_seconds, 25):
            sys.exit(f"{what}: it took {seconds:.0f} s, the uninterrupted run "
                     f"{whole_seconds:.0f} s\n{words}")
        go_on_to_the_end(data, run, expected, what)
    print(f"{KILLS} kills, {len(STOPS)} stops: weights bit-identical each time")


main()
