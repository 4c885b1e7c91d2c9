"""The job of weights_timed.cpp with Python's safetensors."""
import argparse
import json
import statistics
import time

import torch
from safetensors.torch import load_file, save_file

FILE = "weights.safetensors"


def median_seconds(times, f):
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        f()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def total(state):
    """Reads every value once."""
    return sum(tensor.sum().item() for tensor in state.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=21)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    times = arguments.times
    state = {f"layer{i}.weight": torch.rand(250, 1000) for i in range(100)}
    write = median_seconds(times, lambda: save_file(state, FILE))
    report = {
        "write_seconds": write,
        "read_seconds": median_seconds(
            times, lambda: total(load_file(FILE, backend="pread"))
        ),
        "mapped_seconds": median_seconds(times, lambda: total(load_file(FILE))),
        "open_seconds": median_seconds(times, lambda: load_file(FILE)),
    }
    with open(arguments.json, "w") as file:
        json.dump(report, file)


main()
