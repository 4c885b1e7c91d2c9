"""Runs a command if the Python of ./dev bench peers has a module.

peers.py MODULE SCRIPT.py ARGUMENT...   the script, by that Python
peers.py MODULE PROGRAM ARGUMENT...     a program that reads files written by it

The Python is located when a test runs, so that it may be installed after the build
folder was configured. Exits with 77 if it is missing.
"""
import os
import pathlib
import subprocess
import sys

SKIPPED = 77


def main(module, *command):
    python = pathlib.Path.home() / ".cache/tern/peers/bin/python"
    if not python.is_file():
        print(f"SKIPPED: there is no {python}; ./dev bench peers installs it")
        return SKIPPED
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    if subprocess.run([python, "-c", look]).returncode:
        print(f"SKIPPED: {python} has no {module}; ./dev bench peers installs it")
        return SKIPPED
    os.execv(python if command[0].endswith(".py") else command[0],
             [*([python] if command[0].endswith(".py") else []), *command])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
