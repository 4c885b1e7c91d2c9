#!/usr/bin/env bash
# list_tests.sh BUILD: prints the test files with the label gpu, each with its program.
set -euo pipefail
cd "$1"
ctest -N -V -L '^gpu$' | sed -nE 's|.*Test command: .*/([a-z_]+)"? "--file=([^"]+)".*|\2 \1|p'
