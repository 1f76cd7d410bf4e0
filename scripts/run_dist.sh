#!/usr/bin/env bash
# `terngrad launch --config=FILE` by its older name.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_known '--config= --experiment= --restart= --tunnel --check --status
  --dry_run --' "$@"
launch "$@"
