#!/usr/bin/env bash
# Runs the tests of a folder against random mutants; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/mutants.sh --folder=F --output=DIR [--count=N] [--seed=S]
                          [--jobs=J] [--again] [argument ...]

Changes one operator, constant, condition or statement of terngrad/F in a copy of
the project, runs the tests of tests/F, and repeats this N times with other
changes. A second call continues the first. Prints the changes that no test
detects ("survivors").

  --folder=F    a folder, such as codec
  --output=DIR  folder for the copy, the map of tests and lines, mutants.jsonl
  --count=N     number of mutants (default: 200)
  --seed=S      seed of their choice (default: 1)
  --jobs=J      mutants in parallel (default: 1)
  --again       run the current tests against the survivors

Other arguments go to python -m tests.mutants.
USAGE
}

for argument in "$@"; do
  case "$argument" in
    --help | -h) usage && exit 0 ;;
  esac
done
run_tests_module tests.mutants "$@"
