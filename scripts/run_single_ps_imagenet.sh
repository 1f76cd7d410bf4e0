#!/usr/bin/env bash
# Is one parameter server of a run on ImageNet.
set -euo pipefail
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh"

run_single_ps imagenet alexnet "$@"
