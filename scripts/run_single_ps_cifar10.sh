#!/usr/bin/env bash
# Runs one parameter server of a run on CIFAR-10.
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh" \
  ps cifar10 cifar10 "$@"
