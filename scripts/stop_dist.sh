#!/usr/bin/env bash
# Older name of `terngrad launch --config=FILE --stop`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_known '--config= --experiment= --seconds=' "$@"
launch --stop "$@"
