"""Records what Python's torch computes, for the tests of this folder to reproduce.

Usage: make_fixtures.py OUT

With OUT = tests/parity/fixtures it updates the stored fixtures; the tests named
parity/live/... run it every time.

OUT gets one JSON file per concept. Floats that must agree in every bit are stored
as the bytes of their tensor. Initial weights and data are stored too, so that the
tests do not depend on equal random numbers.
"""

import json
import pathlib
import sys

import torch

from oracle import (
    arithmetic,
    autocast_policy,
    custom_function,
    distributed,
    scaler_state,
    scaler_traces,
    scenarios,
    training,
)

CONCEPTS = (
    arithmetic,
    scaler_traces,
    scaler_state,
    training,
    scenarios,
    autocast_policy,
    custom_function,
    distributed,
)


def main(out: pathlib.Path) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    for concept in CONCEPTS:
        name = concept.__name__.rpartition(".")[2]
        content = {
            "torch": torch.__version__,
            "cpu": torch.backends.cpu.get_cpu_capability(),
            **concept.fixture(),
        }
        (out / f"{name}.json").write_text(to_json(content))


def to_json(content: dict) -> str:
    """JSON with one line per entry, and per element of a list of records."""
    lines = []
    for key, value in content.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            text = "[\n  " + ",\n  ".join(map(compact, value)) + "]"
        else:
            text = compact(value)
        lines.append(f" {compact(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def compact(value) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
