#!/usr/bin/env bash
# Trains cifar10_alexnet on CIFAR-10 with momentum, for 80,000 steps,
# and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  cifar10 cifar10 quick.flags num_nodes "$@"
