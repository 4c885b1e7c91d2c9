"""fastai's side of the comparison `mnist`: the work of mnist_timed.cpp."""
import argparse
import json
import time


def seconds_since_start():
    """Seconds since the start of this process."""
    with open("/proc/self/stat") as stat:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / 100


from fastai.vision.all import (  # noqa: E402, the clock is read from the start
    Callback,
    ImageDataLoaders,
    Learner,
    SimpleCNN,
    accuracy,
    set_seed,
)


class Stopwatch(Callback):
    first_batch_seconds = None

    def before_epoch(self):
        self.start = time.perf_counter()

    def before_batch(self):
        if self.first_batch_seconds is None:
            self.first_batch_seconds = seconds_since_start()

    def after_epoch(self):
        self.epoch_seconds = time.perf_counter() - self.start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()

    set_seed(42)
    stopwatch = Stopwatch()
    dls = ImageDataLoaders.from_folder(arguments.data, bs=64, num_workers=2)
    learn = Learner(
        dls, SimpleCNN((3, 16, 16, 2), bn=False), metrics=accuracy, cbs=stopwatch
    )
    with learn.no_bar():
        learn.fit(arguments.epochs)
    with open(arguments.json, "w") as file:
        json.dump(
            {
                "epoch_seconds": stopwatch.epoch_seconds,
                "first_batch_seconds": stopwatch.first_batch_seconds,
                "accuracy": learn.recorder.values[-1][-1],
            },
            file,
        )


if __name__ == "__main__":
    main()
