"""Events of a scaler, as JSON.

    {"gradients": ["finite", "nan"]}   a step of two optimizers, then update()
    {"update": 8.0}                    update(8.0)
    {"growth_interval": 3}             a setter; also growth_ and backoff_factor
"""

import torch

GRADIENTS = {
    "finite": 1.0,
    "inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}


def finite(count: int) -> list:
    return [{"gradients": ["finite"]}] * count


def overflow(kind: str = "inf") -> list:
    return [{"gradients": [kind]}]


def play(scaler: torch.amp.GradScaler, events: list) -> list:
    """Returns [scale, tracker] after each event."""
    trace = []
    scaler.scale(torch.ones(()))
    for event in events:
        happen(scaler, event)
        trace.append([scaler.get_scale(), scaler._get_growth_tracker()])
    return trace


def happen(scaler: torch.amp.GradScaler, event: dict) -> None:
    if "gradients" in event:
        # Kept until update(): the scaler identifies optimizers by their id.
        optimizers = [optimizer_with(GRADIENTS[kind]) for kind in event["gradients"]]
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    elif "update" in event:
        scaler.update(event["update"])
    else:
        ((name, value),) = event.items()
        getattr(scaler, f"set_{name}")(value)


def optimizer_with(gradient: float) -> torch.optim.Optimizer:
    param = torch.zeros(3, requires_grad=True)
    param.grad = torch.tensor([1.0, gradient, 1.0])
    return torch.optim.SGD([param], lr=1.0)
