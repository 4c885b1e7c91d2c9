"""Timing functions of the programs beside this file, as in tests/bench/measure.h."""
import resource
import statistics
import sys
import time

WARM_UP = 2
# With --cpu-time, processor time instead of wall-clock time.
clock = time.process_time if "--cpu-time" in sys.argv else time.perf_counter


def median_seconds(steps, step):
    times = []
    for i in range(-WARM_UP, steps):
        begin = clock()
        step()
        if i >= 0:
            times.append(clock() - begin)
    return statistics.median(times)


def peak_megabytes():
    """Peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
