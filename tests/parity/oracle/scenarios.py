"""The loops of PyTorch's AMP examples, with an overflow in the middle."""

import torch

from .nets import World, autocast, encode_nets, loss_of, new_optimizer
from .tensors import encode

STEPS = 4
OVERFLOW_AT = 1
OPTIMIZERS = (("sgd", "python"), ("adamw", "tern"))
PRECISIONS = ("float32", "bfloat16", "float16")


class Run:
    """Nets, their optimizers and a scaler that grows after each step without overflow."""

    def __init__(self, world: World, optimizer: tuple, precision: str):
        self.world, self.precision = world, precision
        self.nets = world.new_nets()
        self.opts = [new_optimizer(*optimizer, net.parameters()) for net in self.nets]
        self.net, self.opt = self.nets[0], self.opts[0]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=1)
        self.losses, self.norms, self.trace = [], [], []

    def forward(self, batch: int) -> torch.Tensor:
        with autocast(self.precision):
            loss = loss_of(self.net, self.world.images[batch], self.world.labels[batch])
        self.losses.append(loss.detach())
        return loss

    def overflow(self, net) -> None:
        list(net.parameters())[3].grad[2] = float("inf")

    def finish(self, opts) -> None:
        for opt in opts:
            self.scaler.step(opt)
        self.scaler.update()
        for opt in opts:
            opt.zero_grad()
        self.trace.append([self.scaler.get_scale(), self.scaler._get_growth_tracker()])


def typical(run: Run, step: int) -> None:
    run.scaler.scale(run.forward(step)).backward()
    if step == OVERFLOW_AT:
        run.overflow(run.net)
    run.finish([run.opt])


def clip(run: Run, step: int) -> None:
    run.scaler.scale(run.forward(step)).backward()
    if step == OVERFLOW_AT:
        run.overflow(run.net)
    run.scaler.unscale_(run.opt)
    run.norms.append(torch.nn.utils.clip_grad_norm_(run.net.parameters(), 0.2))
    run.finish([run.opt])


def accumulation(run: Run, step: int) -> None:
    for part in (0, 1):
        run.scaler.scale(run.forward(2 * step + part) / 2).backward()
        if step == OVERFLOW_AT and part == 0:
            run.overflow(run.net)
    run.finish([run.opt])


def penalty(run: Run, step: int) -> None:
    loss = run.forward(step)
    scaled = torch.autograd.grad(
        run.scaler.scale(loss), list(run.net.parameters()), create_graph=True
    )
    inverse = 1.0 / run.scaler.get_scale()
    with autocast(run.precision):
        norm = sum((grad * inverse).pow(2).sum() for grad in scaled).sqrt()
        loss = loss + norm
    run.scaler.scale(loss).backward()
    run.norms.append(norm.detach())
    if step == OVERFLOW_AT:
        run.overflow(run.net)
    run.finish([run.opt])


def several_models(run: Run, step: int) -> None:
    image, label = run.world.images[step], run.world.labels[step]
    with autocast(run.precision):
        a, b = (net(image) for net in run.nets)
        cross_entropy = torch.nn.functional.cross_entropy
        losses = [
            cross_entropy(2 * a + 3 * b, label),
            cross_entropy(3 * a - 5 * b, label),
        ]
    run.scaler.scale(losses[0]).backward(retain_graph=True)
    run.scaler.scale(losses[1]).backward()
    run.losses += [loss.detach() for loss in losses]
    if step == OVERFLOW_AT:
        run.overflow(run.nets[1])
    run.scaler.unscale_(run.opts[0])
    run.finish(run.opts)


SCENARIOS = (typical, clip, accumulation, penalty, several_models)


def fixture() -> dict:
    world = World(seed=2)
    runs = [
        play(world, scenario, optimizer, precision)
        for scenario in SCENARIOS
        for optimizer in OPTIMIZERS
        for precision in PRECISIONS
    ]
    return {**world.encode(), "runs": runs}


def play(world: World, scenario, optimizer: tuple, precision: str) -> dict:
    run = Run(world, optimizer, precision)
    for step in range(STEPS):
        scenario(run, step)
    nets = run.nets if scenario is several_models else [run.net]
    return {
        "scenario": scenario.__name__,
        "optimizer": optimizer[0],
        "precision": precision,
        "losses": encode(torch.stack(run.losses)),
        "norms": encode(torch.stack(run.norms)) if run.norms else None,
        "trace": run.trace,
        **encode_nets(nets),
    }
