"""Programs that measure once for each line that they read and print the numbers
as a line of JSON: gpu_timed and gpu_torch.py. They start once for all rounds,
since loading torch and initializing CUDA take longer than most rounds.

The programs of both sides share the GPU but never work at the same time: the next
one starts only after the previous one has synchronized with the device and
reported. Each counts the memory of its own process and empties its allocator's
cache before it reports, so the idle program holds only its CUDA context, half a
GB, and the other program can use the rest of the GPU.
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
        self.log = log  # path of its stderr
        self.time_out = ""  # the message once its time is over
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
        """Measures once and returns name -> number."""
        with contextlib.suppress(BrokenPipeError):  # read_line reports the reason
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return json.loads(self.read_line("{"))

    def read_line(self, beginning):
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line  # other lines are printed by libraries
        code = self.process.wait()
        if self.time_out:
            raise Failed(self.time_out)
        lines = self.log.read_text(errors="replace").splitlines()
        last_words = "\n".join(lines[-LINES_OF_A_FAILURE:])
        raise Failed(
            f"{' '.join(self.command)} ended with {code}:\n{last_words}"
        )

    def kill(self):
        """Kills the program and its workers."""
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
    end with the block, or after `seconds`: waiting for their numbers then
    fails with TIME OUT."""
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
    """On SIGTERM, as `timeout` sends it, exits through the blocks of `running`."""

    def end(*_):
        raise SystemExit("ended by SIGTERM")

    signal.signal(signal.SIGTERM, end)
