"""state_dict() of a scaler in use, and the scaler's next trace."""

import torch

from .scaler_events import finite, overflow, play

BEFORE = finite(3) + overflow() + finite(2)
AFTER = finite(2) + overflow("nan") + finite(7)


def fixture() -> dict:
    return {"states": [state(*case) for case in cases()]}


def cases():
    yield {}, []
    yield dict(init_scale=256.0, growth_interval=3), BEFORE
    yield dict(init_scale=1000.0, growth_factor=1.1, backoff_factor=0.3), BEFORE


def state(options: dict, before: list) -> dict:
    scaler = torch.amp.GradScaler("cpu", **options)
    if before:
        play(scaler, before)
    saved = scaler.state_dict()
    return {"state_dict": saved, "events": AFTER, "trace": play(scaler, AFTER)}
