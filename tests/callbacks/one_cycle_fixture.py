"""Writes one_cycle_fixture.json: the values of fastai's schedules at each step.

Usage, with fastai installed (./dev bench peers creates such an environment):
python one_cycle_fixture.py > one_cycle_fixture.json
"""
import json
import sys

import fastai
import torch
from fastai.basics import (
    Callback,
    DataLoader,
    DataLoaders,
    Learner,
    MSELossFlat,
)
from torch.utils.data import TensorDataset

from fastai.callback import schedule  # adds fit_one_cycle to Learner
from fastai.callback.progress import ProgressCallback

BATCHES = 7


class Hypers(Callback):
    """Records learning rate and momentum of each group in each batch."""

    def __init__(self):
        self.rows = []

    def before_step(self):
        if self.training:
            self.rows.append(
                [[h["lr"], h["mom"]] for h in self.learn.opt.hypers]
            )


def groups(model):
    return [list(layer.parameters()) for layer in model]


def hypers(run):
    x = torch.randn(BATCHES * 4, 3)
    loader = DataLoader(TensorDataset(x, x), bs=4)
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))
    record = Hypers()
    learn = Learner(
        DataLoaders(loader, loader),
        model,
        loss_func=MSELossFlat(),
        splitter=groups,
        cbs=record,
    )
    learn.remove_cb(ProgressCallback)
    with learn.no_logging():
        run(learn)
    return record.rows


def fine_tune_weights():
    """One batch per epoch, so that the order of samples does not matter."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 3), torch.randn(8, 3)
    loader = DataLoader(TensorDataset(x, y), bs=8)
    model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(2)))
    weights = lambda: [p.detach().flatten().tolist() for p in model.parameters()]
    result = {"x": x.flatten().tolist(), "y": y.flatten().tolist(), "begin": weights()}
    learn = Learner(DataLoaders(loader, loader), model, loss_func=MSELossFlat(), splitter=groups, wd=1e-2)
    learn.remove_cb(ProgressCallback)
    with learn.no_logging():
        learn.fine_tune(6, base_lr=4e-2, freeze_epochs=4)
    return result | {"end": weights()}


def main():
    # fastai rounds positions to float, an error of 1e-8; this keeps doubles.
    schedule.tensor = lambda parts: torch.tensor(list(parts)).double()
    torch.set_default_dtype(torch.float64)
    runs = {
        "one_cycle": lambda l: l.fit_one_cycle(3, 1e-2),
        "one_cycle_slice": lambda l: l.fit_one_cycle(
            2,
            slice(1e-5, 1e-2),
            div=10,
            div_final=1e3,
            pct_start=0.4,
            moms=(0.9, 0.8, 0.92),
        ),
        "fine_tune": lambda l: l.fine_tune(2, base_lr=4e-3),
        "flat_cos": lambda l: l.fit_flat_cos(4, 1e-2),
        "sgdr": lambda l: l.fit_sgdr(3, 1, 1e-2),
    }
    fixture = {"fastai": fastai.__version__, "batches": BATCHES}
    fixture |= {name: hypers(run) for name, run in runs.items()}
    fixture["fine_tune_weights"] = fine_tune_weights()
    json.dump(fixture, sys.stdout, separators=(",", ":"))
    print()


main()
