"""Two processes under DistributedDataParallel: gradients of the last step and
weights after twenty steps, without hooks and with torch's compression hooks."""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from .nets import World, encode_nets, loss_of, new_optimizer
from .tensors import encode_all

RANKS = 2
STEPS = 20
HOOKS = {
    "float32": None,
    "float16": default_hooks.fp16_compress_hook,
    "bfloat16": default_hooks.bf16_compress_hook,
}


def fixture() -> dict:
    world = World(seed=0)
    with tempfile.TemporaryDirectory() as folder:
        # Spawned, not forked: this process has already run backward.
        torch.multiprocessing.spawn(run_rank, (folder,), RANKS)
        runs = torch.load(pathlib.Path(folder) / "runs.pt")
    return {**world.encode(), "steps": STEPS, "runs": runs}


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    runs = [run(rank, travel_as) for travel_as in HOOKS]
    if rank == 0:
        torch.save(runs, pathlib.Path(folder) / "runs.pt")
    dist.barrier()
    dist.destroy_process_group()
    # Python's exit sometimes destroys a Gloo thread that is still running.
    os._exit(0)


def run(rank: int, travel_as: str) -> dict:
    world = World(seed=0)
    net = world.new_nets()[0]
    ddp = DistributedDataParallel(net)
    if HOOKS[travel_as]:
        ddp.register_comm_hook(None, HOOKS[travel_as])
    optimizer = new_optimizer("sgd", "python", net.parameters())
    for step in range(STEPS):
        batch = step % len(world.images)
        images, labels = world.images[batch], world.labels[batch]
        mine = slice(rank * len(images) // RANKS, (rank + 1) * len(images) // RANKS)
        optimizer.zero_grad()
        loss_of(ddp, images[mine], labels[mine]).backward()
        optimizer.step()
    return {
        "travel_as": travel_as,
        "gradients": encode_all([p.grad for p in net.parameters()]),
        **encode_nets([net]),
    }
