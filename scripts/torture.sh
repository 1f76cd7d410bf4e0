#!/usr/bin/env bash
# Random faults, compared with an undisturbed run; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/torture.sh [--minutes=N] [--seed=S] [--round=R] [--fault=NAME]
                          [--output=DIR]

Trainers are stopped and killed, and so are servers, workers and equal processes
of clusters; checkpoints, records, data and sources damaged, converters and
evaluators killed, disks full, archives hostile, decoders given words that no
encoder made: in random order, each against a run that nothing disturbed. Stops
at the first difference with the command that repeats it, and exits with 1.

  --minutes=N   how long (default: 10)
  --seed=S      of all rounds (default: 1)
  --round=R     only this round
  --fault=NAME  only faults with this in their names: cluster_faults.py and
                others in tests/torture
  --output=DIR  where it works (default: a new folder)
USAGE
}

check_known '--minutes= --seed= --round= --fault= --output=' "$@"
[[ " $*" == *' --output='* ]] || set -- "--output=$(mktemp -d)" "$@"
run_tests_module tests.torture "$@"
