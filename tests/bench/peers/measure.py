"""How the programs beside measure; as tests/bench/measure.h."""
import resource
import statistics
import time

WARM_UP = 2


def median_seconds(steps, step):
    times = []
    for i in range(-WARM_UP, steps):
        begin = time.perf_counter()
        step()
        if i >= 0:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def peak_megabytes():
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
