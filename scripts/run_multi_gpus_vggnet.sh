#!/usr/bin/env bash
# Trains VGG-A on ImageNet, and evaluates it side by side.
# shellcheck source=scripts/multi_gpus.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/multi_gpus.sh" \
  imagenet vggnet '' num_gpus "$@"
