#!/usr/bin/env bash
# Runs one worker that trains AlexNet on ImageNet.
# shellcheck source=scripts/single.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/single.sh" \
  worker imagenet alexnet "$@"
