#!/usr/bin/env bash
# Checks this project on a GPU, in at most six minutes; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/gpu_check.sh [--output=DIR] [--parts=NAME,NAME] [--device=gpu:0]
                            [--small]

Compares the words of all codes with those of the CPU, trains a run twice, and
times codes and the steps of AlexNet, ResNet-50 and a transformer. Each part has
a time limit. Prints figures as they come, then a table, and writes them as JSON
into DIR (default: gpu_check). See `terngrad measure gpu --help` and docs/gpu.md.

Exits with 0 if everything is within its limits, with 1 if something is not, and
with 3 if there is no GPU.

From the environment: PYTHON, an interpreter with terngrad (default: that of
scripts/setup.sh).
USAGE
}

check_known '--output= --parts= --device= --small' "$@"
find_python
exec "$python" -m terngrad.cli.main measure gpu "$@"
