"""Writes weight files as Python does. Usage: make_weight_files.py OUT

With OUT = tests/parity/fixtures/weights it renews what is stored; `safetensors`
from PyPI is needed there, and left out elsewhere if it is missing.
"""

import pathlib
import sys

from oracle import weight_files

if __name__ == "__main__":
    weight_files.write(pathlib.Path(sys.argv[1]))
