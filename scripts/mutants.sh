#!/usr/bin/env bash
# Runs the tests of a folder against random mutants; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/mutants.sh --folder=F --output=DIR [--count=N] [--seed=S]
                          [--jobs=J] [--again] [argument ...]

Changes an operator, a constant, a condition or a statement of terngrad/F, in a
copy of the project, and looks whether the tests of tests/F see it: N times, each
by itself. A second call goes on where the first ended. Prints the survivors.

  --folder=F    such as codec
  --output=DIR  for the copy, the map of tests and lines, and mutants.jsonl
  --count=N     how many (default: 200)
  --seed=S      by which they are chosen (default: 1)
  --jobs=J      at a time (default: 1)
  --again       asks the tests as they are now about the survivors

Other arguments are of python -m tests.mutants.
USAGE
}

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
  esac
done
run_tests_module tests.mutants "$@"
