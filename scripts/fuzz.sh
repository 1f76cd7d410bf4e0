#!/usr/bin/env bash
# Random inputs for every parser and decoder; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/fuzz.sh [--inputs=N] [--seed=S] [--target=NAME] [--input=FILE]
                       [--output=DIR]

Changes valid inputs at random and passes them to every parser and decoder of
external data, in a process with limited memory and time. Changes an input
further if it executes lines in a new order. Stores failing inputs with the
command that repeats them, and then exits with 1.

  --inputs=N    per target (default: 10000)
  --seed=S      of all inputs (default: 1)
  --target=NAME only these; patterns, such as 'tar*,payload_*'
  --input=FILE  only this input
  --output=DIR  folder for failing inputs (default: a new folder)
USAGE
}

check_known '--inputs= --seed= --target= --input= --output=' "$@"
[[ " $*" == *' --output='* ]] || set -- "--output=$(mktemp -d)" "$@"
run_tests_module tests.fuzzing "$@"
