"""(scale, tracker) after every event, for many settings."""

import torch

from .scaler_events import finite, overflow, play


def fixture() -> dict:
    return {"traces": [trace(*case) for case in cases()]}


def cases():
    yield (
        "backs_off_and_grows_as_documented",
        dict(init_scale=4.0, backoff_factor=0.25, growth_interval=2),
        finite(3) + overflow() + finite(5) + overflow("nan") + finite(4),
    )
    yield (
        "never_grows_to_infinity",
        dict(init_scale=2.0**127, growth_interval=1),
        finite(4) + overflow() + finite(7),
    )
    yield (
        "shrinks_to_zero",
        dict(init_scale=2.0**-140, growth_interval=1000),
        overflow() * 16,
    )
    yield (
        "a_nan_among_ten_steps",
        dict(init_scale=8.0, growth_interval=3),
        finite(4) + overflow("nan") + finite(5) + overflow("-inf") + finite(4),
    )
    yield (
        "default_settings",
        {},
        overflow() * 3 + finite(10) + overflow("nan"),
    )
    yield (
        "grows_at_every_step",
        dict(init_scale=128.0, growth_interval=1),
        finite(2) + overflow() + finite(10),
    )
    yield (
        "factors_that_are_no_powers_of_two",
        dict(
            init_scale=1000.0,
            growth_factor=1.3,
            backoff_factor=0.7,
            growth_interval=2,
        ),
        finite(7) + overflow() * 2 + finite(6) + overflow("-inf") + finite(3),
    )
    yield (
        "overflows_just_before_it_would_grow",
        dict(init_scale=1024.0, growth_interval=4),
        (finite(3) + overflow()) * 4 + finite(8),
    )
    yield (
        "several_optimizers_update_once",
        dict(init_scale=64.0, growth_interval=3),
        [{"gradients": ["finite", "finite", "finite"]}] * 4
        + [{"gradients": ["finite", "inf"]}]
        + [{"gradients": ["nan", "inf"]}]
        + [{"gradients": ["finite", "finite"]}] * 6,
    )
    yield (
        "settings_that_change_on_the_way",
        dict(init_scale=16.0, growth_interval=3),
        finite(2)
        + [{"update": 8.0}]
        + finite(2)
        + [{"growth_interval": 5}]
        + finite(4)
        + [{"growth_factor": 3.0}, {"backoff_factor": 0.1}]
        + finite(5)
        + overflow()
        + finite(5),
    )


def trace(name: str, options: dict, events: list) -> dict:
    scaler = torch.amp.GradScaler("cpu", **options)
    return {
        "name": name,
        "options": options,
        "events": events,
        "trace": play(scaler, events),
    }
