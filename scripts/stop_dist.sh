#!/usr/bin/env bash
# `terngrad launch --config=FILE --stop` by its older name.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_known '--config= --experiment= --seconds=' "$@"
launch --stop "$@"
