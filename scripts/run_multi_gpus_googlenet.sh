#!/usr/bin/env bash
# Trains GoogLeNet on ImageNet in small batches, for 10 million steps,
# and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  imagenet googlenet long.flags 'num_gpus num_nodes' "$@"
