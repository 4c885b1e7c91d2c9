"""The job of tests/bench/ddp_timed.cpp in Python."""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torchvision

RANKS, BATCH, WARM_UP = 2, 8, 3


def train(rank, steps, how, report):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", **how, rank=rank)
    net = torch.nn.parallel.DistributedDataParallel(
        torchvision.models.resnet18().to(memory_format=torch.channels_last)
    )
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.01, momentum=0.9, fused=True
    )
    images = torch.randn(BATCH, 3, 128, 128).to(
        memory_format=torch.channels_last
    )
    labels = torch.randint(1000, (BATCH,))
    ends = []
    for _ in range(steps + WARM_UP):
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
    if rank == 0:
        times = [b - a for a, b in zip(ends, ends[1:])][WARM_UP - 1 :]
        with open(report, "w") as file:
            travel = net._get_ddp_logging_data()
            hidden = travel["avg_backward_compute_comm_overlap_time"] / 1e9
            seconds = travel["avg_backward_comm_time"] / 1e9
            json.dump(
                {
                    "step_seconds": statistics.median(times),
                    "hidden_share": hidden / seconds,
                    "travel_seconds": seconds,
                    "unhidden_seconds": seconds - hidden,
                },
                file,
            )
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    if "RANK" in os.environ:  # one of the processes
        how = {"init_method": "env://"}
        train(int(os.environ["RANK"]), arguments.steps, how, arguments.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        how = {"init_method": f"file://{folder}/store", "world_size": RANKS}
        torch.multiprocessing.spawn(
            train, (arguments.steps, how, arguments.json), RANKS
        )


if __name__ == "__main__":
    main()
