#!/usr/bin/env bash
# Trains GoogLeNet on ImageNet, for 600,000 steps,
# and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  imagenet googlenet float_2.flags 'num_gpus num_nodes' "$@"
