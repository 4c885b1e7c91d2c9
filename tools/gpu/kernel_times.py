"""Sums the output of ncu --csv --metrics gpu__time_duration.sum by kernel:

    kernel_times.py LOG...

If Tern's optimizer runs more than once in a log, counts only the whole training
steps between its first and its last launch, and prints the times per step.
"""
import collections
import csv
import pathlib
import re
import sys

MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}


def kernels_in(log):
    """Yields (name, microseconds) for each launch."""
    lines = log.read_text(errors="replace").splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return
    for row in csv.DictReader(lines[first:]):
        unit = MICROSECONDS.get(row.get("Metric Unit", ""))
        if unit:
            duration = float(row["Metric Value"].replace(",", ""))
            yield short(row["Kernel Name"]), duration * unit


def short(name):
    """The name without arguments and common namespaces."""
    name = re.sub(r"\(anonymous namespace\)::|\(.*|void |at::native::|tern::", "", name)
    return name[:90]


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        launches = list(kernels_in(path))
        ends = [i for i, (name, _) in enumerate(launches) if "step_kernel" in name]
        steps = max(len(ends) - 1, 1)
        if len(ends) > 1:
            launches = launches[ends[0] : ends[-1]]
        times = collections.defaultdict(list)
        for name, duration in launches:
            times[name].append(duration)
        total = sum(map(sum, times.values()))
        what = "a step" if len(ends) > 1 else "not a whole step"
        print(f"{path.stem}: {what} has {len(launches) // steps} launches, {total / steps:.0f} us")
        slowest = sorted(times.items(), key=lambda item: -sum(item[1]))
        for name, durations in slowest[:20]:
            own = sum(durations)
            print(f"  {own / total:6.1%} {own / steps:9.1f} us {len(durations) // steps:5} x {name}")


if __name__ == "__main__":
    main()
