"""Continues with a scaler that Tern saved. Usage: check_scaler_state.py FILE

FILE holds the states of several scalers, the events that follow, and the traces
of Tern's scalers. Python's scalers must produce the same traces.
"""

import json
import pathlib
import sys

import torch

from oracle.scaler_events import play

KEYS = {
    "scale",
    "growth_factor",
    "backoff_factor",
    "growth_interval",
    "_growth_tracker",
}


def main(path: pathlib.Path) -> None:
    saved = json.loads(path.read_text())["states"]
    assert len(saved) >= 3, f"{len(saved)} states; expected at least 3"
    for number, state in enumerate(saved):
        assert set(state["state_dict"]) == KEYS, state["state_dict"]
        scaler = torch.amp.GradScaler("cpu")
        scaler.load_state_dict(state["state_dict"])
        trace = play(scaler, state["events"])
        assert len(trace) >= 10, f"{len(trace)} events; expected at least 10"
        assert trace == state["trace"], (
            f"state {number}: Tern's trace is {state['trace']}, Python's {trace}"
        )
    print(f"{len(saved)} states go on alike.")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
