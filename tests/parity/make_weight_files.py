"""Writes weight files as Python does. Usage: make_weight_files.py OUT

With OUT = tests/parity/fixtures/weights it updates the stored files, which needs
`safetensors` from PyPI; elsewhere its files are left out if it is missing.
"""

import pathlib
import sys

from oracle import weight_files

if __name__ == "__main__":
    weight_files.write(pathlib.Path(sys.argv[1]))
