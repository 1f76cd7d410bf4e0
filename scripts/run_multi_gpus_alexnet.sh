#!/usr/bin/env bash
# Trains AlexNet on ImageNet with ternary gradients of 8 workers,
# and evaluates it side by side.
set -euo pipefail
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh"

run_multi_gpus imagenet alexnet ternary_8.flags num_gpus "$@"
