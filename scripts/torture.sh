#!/usr/bin/env bash
# Random faults, compared with an undisturbed run; not part of the gate.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'USAGE'
usage: scripts/torture.sh [--minutes=N] [--seed=S] [--round=R] [--fault=NAME]
                          [--output=DIR]

Creates faults in random order and compares each run with an undisturbed run. It
stops and kills trainers, servers, workers, equal processes, converters and
evaluators; damages checkpoints, records, data and sources; fills disks; makes
hostile archives and corrupted payloads. Stops at the first difference, prints the
command that repeats it, and exits with 1.

  --minutes=N   duration (default: 10)
  --seed=S      seed of all rounds (default: 1)
  --round=R     only this round
  --fault=NAME  only faults whose names contain NAME: cluster_faults.py and
                others in tests/torture
  --output=DIR  folder for the runs (default: a new folder)
USAGE
}

check_known '--minutes= --seed= --round= --fault= --output=' "$@"
[[ " $*" == *' --output='* ]] || set -- "--output=$(mktemp -d)" "$@"
run_tests_module tests.torture "$@"
