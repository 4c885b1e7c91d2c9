"""Programs that measure once for each line that they read, and print the
numbers as a line of JSON: gpu_timed and gpu_torch.py. They start once for all
rounds, since loading torch and starting CUDA takes longer than most rounds.

The programs of both sides are on the GPU together, but never work at the same
time: the next is asked when the last has answered, which it does after it has
waited for the device. Each counts the memory of its own process, and gives
what its allocator keeps back to the GPU before it answers: the one that waits
holds only its CUDA context, half a GB, and the other has the rest of the GPU.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

LINES_OF_A_FAILURE = 15


class Failed(Exception):
    """A program ended, or ran out of time, before it had measured."""


class Program:
    def __init__(self, command, log, environment):
        self.command = command
        self.log = log  # path of what it writes to stderr
        self.time_out = ""  # says so once its time is over
        try:
            with open(log, "w") as file:
                self.process = subprocess.Popen(
                    command,
                    cwd=log.parent,
                    env=os.environ | environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    start_new_session=True,  # its workers end with it
                )
        except OSError as error:
            raise Failed(f"{command[0]} does not start: {error}") from None

    def wait_until_ready(self):
        self.read_line("ready")

    def measure(self):
        """Its numbers: name -> number."""
        with contextlib.suppress(BrokenPipeError):  # read_line says why
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return json.loads(self.read_line("{"))

    def read_line(self, beginning):
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line  # others are a library's
        code = self.process.wait()
        if self.time_out:
            raise Failed(self.time_out)
        lines = self.log.read_text(errors="replace").splitlines()
        last_words = "\n".join(lines[-LINES_OF_A_FAILURE:])
        raise Failed(
            f"{' '.join(self.command)} ended with {code}:\n{last_words}"
        )

    def kill(self):
        """With its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.kill()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


@contextlib.contextmanager
def running(commands, seconds, environment={}):
    """Starts programs (name -> command) and yields them (name -> Program). They
    end with the block, or when `seconds` are over: what waits for their numbers
    then fails with TIME OUT.
    """
    programs = {}

    def stop_all():
        for program in list(programs.values()):
            program.time_out = f"TIME OUT after {seconds:.0f} s"
            program.kill()

    timer = threading.Timer(seconds, stop_all)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        timer.start()
        try:
            for name, command in commands.items():
                log = pathlib.Path(folder) / f"{name}.log"
                programs[name] = Program(command, log, environment)
            yield programs
        finally:
            timer.cancel()
            for program in programs.values():
                program.close()


def end_on_sigterm():
    """Has SIGTERM, as `timeout` sends it, leave the blocks of `running`."""

    def end(*_):
        raise SystemExit("ended by SIGTERM")

    signal.signal(signal.SIGTERM, end)
