#!/usr/bin/env bash
# Is one worker that trains AlexNet on ImageNet.
set -euo pipefail
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh"

run_single_worker imagenet alexnet "$@"
