#!/usr/bin/env bash
# Runs one worker that trains cifar10_alexnet on CIFAR-10.
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh" \
  worker cifar10 cifar10 "$@"
