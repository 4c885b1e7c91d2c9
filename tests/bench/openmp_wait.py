#!/usr/bin/env python3
"""Compares how OpenMP's threads may wait for their next piece of work.

  tests/bench/openmp_wait.py [--rounds N] [--busy N] PROGRAM [ARGUMENT...]

Runs the program under each setting in turn, N rounds, and prints the median
and the smallest wall-clock time and the processor time. --busy starts that many
other programs that only compute. Without --busy, a run is repeated if other
programs used more than a tenth of a core. docs/benchmarks.md has the results.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

SETTINGS = {"default": {}, "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"}} | {
    f"GOMP_SPINCOUNT={n}": {"GOMP_SPINCOUNT": str(n)} for n in (3000, 10000, 30000)
}


def machine_seconds():
    """Processor time of all programs together."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def run_once(command, environment):
    """Wall-clock and processor seconds, and the cores that other programs used."""
    before, machine = resource.getrusage(resource.RUSAGE_CHILDREN), machine_seconds()
    start = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, processor, (machine_seconds() - machine - processor) / wall


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    clean = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    taken = {name: [] for name in SETTINGS}
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for _ in range(arguments.rounds):
            for name, variables in SETTINGS.items():
                wall, processor, disturbed = run_once(arguments.command, clean | variables)
                while not arguments.busy and disturbed > 0.1:
                    time.sleep(1)
                    wall, processor, disturbed = run_once(arguments.command, clean | variables)
                taken[name].append((wall, processor))
    finally:
        for other in others:
            other.kill()
    print(f"{'setting':<24} {'wall s':>6} {'(smallest)':>11} {'processor s':>12}")
    for name, times in taken.items():
        wall, processor = zip(*times)
        print(f"{name:<24} {statistics.median(wall):6.3f} {min(wall):11.3f} {statistics.median(processor):12.2f}")


main()
