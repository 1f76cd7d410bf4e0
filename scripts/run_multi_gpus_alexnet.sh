#!/usr/bin/env bash
# Trains AlexNet on ImageNet with ternary gradients of 8 workers,
# and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  imagenet alexnet ternary_8.flags num_gpus "$@"
