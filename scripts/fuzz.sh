#!/usr/bin/env bash
# Random inputs for every parser and decoder; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/fuzz.sh [--inputs=N] [--seed=S] [--target=NAME] [--input=FILE]
                       [--output=DIR]

Valid inputs are changed as damage and malice change them and given to every
parser and decoder of bytes from elsewhere, in a process whose memory and time
are bounded. Inputs that reach lines in a new order are changed further. What
fails is kept, with the command that repeats it; exits with 1 then.

  --inputs=N    per target (default: 10000)
  --seed=S      of all inputs (default: 1)
  --target=NAME only these; patterns, such as 'tar*,payload_*'
  --input=FILE  only this input
  --output=DIR  where inputs that fail are kept (default: a new folder)
USAGE
}

check_known '--inputs= --seed= --target= --input= --output=' "$@"
[[ " $*" == *' --output='* ]] || set -- "--output=$(mktemp -d)" "$@"
run_tests_module tests.fuzzing "$@"
